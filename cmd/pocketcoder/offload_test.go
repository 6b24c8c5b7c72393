package main

import (
	"os"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func outputsOfArchivedChatsAreMoved(t *testing.T, p *process, dir string) (after func(*testing.T, *process)) {
	is := is.New(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "old"})
	admin.say(t, chat, bash("seq 1 50000"))
	p.turnEnds(t, chat)
	path := "/api/executions/" + admin.list(t, "executions", `chat = "`+chat+`"`)[0]["id"].(string) + "/output"
	before := admin.do(t, "GET", path, nil).body
	is.Equal(len(before), 288894)
	admin.must(t, "PATCH", recordPath("chats", chat), record{"archived": true}, nil)
	return func(t *testing.T, p *process) {
		is := is.New(t)
		var files []os.DirEntry
		expect.Eventually(t, "the output is moved", func() (moved bool) {
			var err error
			files, err = os.ReadDir(dir)
			is.NoErr(err)
			return len(files) == 1 && files[0].Name()[0] != '.' // not one that is being written
		})
		is.Equal(expect.ReadFile(t, dir+"/"+files[0].Name()), before)
		is.Equal(admin.at(p).do(t, "GET", path, nil).body, before)
	}
}

// at is the same account at a system that was started again.
func (l login) at(p *process) login { return login{p, l.token, l.id, l.email} }
