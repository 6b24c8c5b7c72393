package ports

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/web/api"
)

func TestNoAccountTakesTheTicketsOfTheOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var all tickets
	given := func(account, login string) string {
		id, err := all.add(ticket{chat: "c1", port: "3000", account: account, login: login,
			expires: time.Now().Add(time.Hour)})
		is.NoErr(err)
		return id
	}
	login := func(id string) string {
		return all.token(httptest.NewRequest(http.MethodGet, "/api/chats/c1/ports/3000/"+id+"/x", nil))
	}
	first, second := given("eve", "eve1"), given("eve", "eve2")
	others := given("ann", "ann1")
	for i := range maxTickets {
		last := given("eve", fmt.Sprint("eve", i))
		is.Equal(login(last), fmt.Sprint("eve", i))
		is.Equal(login(first) != "", i+3 <= maxOwn) // the oldest makes room, and only it
		is.Equal(login(second) != "", i+2 <= maxOwn)
	}
	is.Equal(len(all.by), maxOwn+1)
	is.Equal(login(others), "ann1")

	for i := len(all.by); i < maxTickets; i++ {
		given(fmt.Sprint("user", i), "x")
	}
	_, err := all.add(ticket{account: "one more", expires: time.Now().Add(time.Hour)})
	is.Equal(err.(api.Problem).Status, http.StatusTooManyRequests)
	given("eve", "eve") // in her own room
}
