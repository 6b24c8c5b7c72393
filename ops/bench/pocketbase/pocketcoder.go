package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	eventlog "pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections"
	"pocketcoder/web"
	"pocketcoder/web/api"
)

// servePocketCoder runs the log, the read models and the API, as `up` does, without OpenCode.
func servePocketCoder(synced bool) error {
	dir, err := os.MkdirTemp("", "bench-pocketcoder-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, closeLog, err := openPocketCoder(ctx, dir, synced)
	if err != nil {
		return err
	}
	defer closeLog()
	server := web.New(s)
	for _, run := range []func(context.Context) error{s.Model.Run, s.Accounts.Run, s.Tail.Run, server.Realtime.Run} {
		go run(ctx)
	}
	t, streaming, err := fillPocketCoder(ctx, s)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(listener, server.Routes())
	t.URL = "http://" + listener.Addr().String()
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return err
	}
	seq := int64(0)
	return eachEmit(func(text string) error {
		seq++
		return say(ctx, s.Log, streaming, seq, "message.part.updated",
			fmt.Sprintf(`{"sessionID":"ses_1","part":{"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","type":"text","text":%q}}`, text))
	})
}

func openPocketCoder(ctx context.Context, dir string, synced bool) (o web.Options, stop func(), err error) {
	keys, err := natsconf.LoadKeys(filepath.Join(dir, "keys"))
	if err != nil {
		return o, nil, err
	}
	server, err := natsconf.Start(ctx, natsconf.Config{
		Name: "bench", StoreDir: filepath.Join(dir, "nats"), Keys: keys.Public, Pools: []string{"default"},
		Bulk: !synced,
	})
	if err != nil {
		return o, nil, err
	}
	options, err := keys.Options(natsconf.Core, "bench")
	if err != nil {
		return o, nil, err
	}
	nc, err := nats.Connect("", append(options, nats.InProcessServer(server.Server))...)
	if err != nil {
		return o, nil, err
	}
	log, err := eventlog.Open(ctx, nc, eventlog.DefaultOptions, secret.NewRedactor())
	if err != nil {
		return o, nil, err
	}
	secrets, err := secret.Open(ctx, nc, 1)
	if err != nil {
		return o, nil, err
	}
	model, err := projections.Open(ctx, dir, log)
	if err != nil {
		return o, nil, err
	}
	accounts, err := account.Open(ctx, log, secrets)
	if err != nil {
		return o, nil, err
	}
	records := recordtype.Open(log, recordtype.Machine{})
	_, err = project.Ensure(ctx, records, project.Project{ID: events.DefaultEngine, Name: "bench", Directory: dir,
		Everyone: project.Member})
	if err != nil {
		return o, nil, err
	}
	gate := permission.Gate{Permissions: &permission.Permissions{Log: log}, Records: records}
	return web.Options{
		Log: log, Tail: eventlog.NewTail(log), Model: model, Chats: &chat.Chats{Log: log}, Records: records, Gate: gate,
		Accounts: accounts, Health: func() api.Health { return nil }, Logger: slog.Default(),
	}, func() { nc.Close(); server.Close() }, nil
}

func fillPocketCoder(ctx context.Context, s web.Options) (t target, streaming string, err error) {
	command := handlers.Command{Actor: events.ActorSystem}
	ada, _, err := s.Accounts.CreateAccount(ctx, account.CreateAccount{Command: command, Email: "ada@example.org",
		Role: account.User, Password: password})
	if err != nil {
		return t, "", err
	}
	listed, _, err := s.Chats.Create(ctx, chat.Create{Command: command, Title: "listed", User: ada})
	if err != nil {
		return t, "", err
	}
	streaming, seq, err := s.Chats.Create(ctx, chat.Create{Command: command, Title: "streaming", User: ada})
	if err != nil {
		return t, "", err
	}
	if err := s.Model.Wait(ctx, seq); err != nil {
		return t, "", err
	}
	err = say(ctx, s.Log, streaming, 0, "message.updated",
		`{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{}}}`)
	return target{Email: "ada@example.org", Chat: listed}, streaming, err
}

func say(ctx context.Context, log *eventlog.Log, chat string, seq int64, typ, properties string) error {
	e, err := events.NewOpenCode(chat, "local", events.NewID(), seq,
		events.OpenCode{Type: typ, Properties: json.RawMessage(properties)})
	if err != nil {
		return err
	}
	_, err = log.Append(ctx, e)
	return err
}
