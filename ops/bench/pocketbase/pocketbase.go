package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"

	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	_ "github.com/pocketbase/pocketbase/migrations" // its own tables
)

// servePocketBase runs PocketBase with the collections of the older system.
func servePocketBase() error {
	dir, err := os.MkdirTemp("", "bench-pocketbase-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	app := core.NewBaseApp(core.BaseAppConfig{DataDir: dir})
	if err := app.Bootstrap(); err != nil {
		return err
	}
	if err := app.RunAllMigrations(); err != nil {
		return err
	}
	t, streak, err := fillPocketBase(app)
	if err != nil {
		return err
	}
	router, err := apis.NewRouter(app)
	if err != nil {
		return err
	}
	mux, err := router.BuildMux()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(listener, mux)
	t.URL = "http://" + listener.Addr().String()
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return err
	}
	return eachEmit(func(text string) error {
		streak.Set("parts", []map[string]string{{"type": "text", "text": text}})
		return app.Save(streak)
	})
}

func fillPocketBase(app core.App) (t target, streak *core.Record, err error) {
	users, err := app.FindCollectionByNameOrId("users")
	if err != nil {
		return t, nil, err
	}
	users.Fields.Add(&core.SelectField{Name: "role", Values: []string{"admin", "agent", "user"}, MaxSelect: 1})
	if err := app.Save(users); err != nil {
		return t, nil, err
	}
	chats := core.NewBaseCollection("chats")
	chats.Fields.Add(&core.TextField{Name: "title"}, &core.RelationField{Name: "user", CollectionId: users.Id,
		MaxSelect: 1})
	if err := app.Save(chats); err != nil {
		return t, nil, err
	}
	messages := core.NewBaseCollection("messages")
	messages.Fields.Add(
		&core.RelationField{Name: "chat", CollectionId: chats.Id, MaxSelect: 1, Required: true},
		&core.TextField{Name: "role"},
		&core.TextField{Name: "engine_message_status"}, &core.TextField{Name: "user_message_status"},
		&core.TextField{Name: "ai_engine_message_id"},
		&core.TextField{Name: "parent_id"}, &core.JSONField{Name: "parts"}, &core.TextField{Name: "error_domain"},
		&core.JSONField{Name: "error_payload"},
		&core.AutodateField{Name: "created", OnCreate: true}, &core.AutodateField{Name: "updated", OnCreate: true,
			OnUpdate: true},
	)
	messages.AddIndex("messages_chat", false, "chat, created", "")
	rule := `chat.user = @request.auth.id || @request.auth.role = "admin" || @request.auth.role = "agent"`
	messages.ListRule, messages.ViewRule, messages.CreateRule = &rule, &rule, &rule
	if err := app.Save(messages); err != nil {
		return t, nil, err
	}
	save := func(c *core.Collection, fields map[string]any) (*core.Record, error) {
		r := core.NewRecord(c)
		r.Load(fields)
		return r, app.Save(r)
	}
	ada, err := save(users, map[string]any{"email": "ada@example.org", "password": password, "role": "user",
		"verified": true})
	if err != nil {
		return t, nil, err
	}
	chat, err := save(chats, map[string]any{"title": "listed", "user": ada.Id})
	if err != nil {
		return t, nil, err
	}
	other, err := save(chats, map[string]any{"title": "streaming", "user": ada.Id})
	if err != nil {
		return t, nil, err
	}
	streak, err = save(messages, map[string]any{"chat": other.Id, "role": "assistant",
		"engine_message_status": "processing"})
	return target{Email: "ada@example.org", Chat: chat.Id}, streak, err
}
