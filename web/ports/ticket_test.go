package ports

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestNoAccountTakesTheTicketsOfTheOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var all tickets
	given := func(account, login string) string {
		id, err := all.Add(ticket{Chat: "c1", Port: "3000", Account: account, Login: login,
			Expires: time.Now().Add(time.Hour)})
		is.NoErr(err)
		return id
	}
	login := func(id string) string {
		return all.Login("/api/chats/c1/ports/3000/" + id + "/x")
	}
	first, second := given("eve", "eve1"), given("eve", "eve2")
	others := given("ann", "ann1")
	for i := range maxTickets {
		last := given("eve", fmt.Sprint("eve", i))
		is.Equal(login(last), fmt.Sprint("eve", i))
		is.Equal(login(first) != "", i+3 <= maxOwnTickets) // the oldest makes room, and only it
		is.Equal(login(second) != "", i+2 <= maxOwnTickets)
	}
	is.Equal(len(all.by), maxOwnTickets+1)
	is.Equal(login(others), "ann1")

	for i := len(all.by); i < maxTickets; i++ {
		given(fmt.Sprint("user", i), "x")
	}
	_, err := all.Add(ticket{Account: "one more", Expires: time.Now().Add(time.Hour)})
	is.True(errors.Is(err, errTooManyTickets))
	given("eve", "eve") // in her own room
}
