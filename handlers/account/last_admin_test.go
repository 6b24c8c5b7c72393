package account

import (
	"fmt"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers"
)

func TestLastAdminStays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", Admin)
	s.add("bob", User)
	refused := func(err error, field string) {
		t.Helper()
		code, text := refusal(t, err)
		is.Equal(code, handlers.Conflict)
		is.Equal(text, field+": alice@example.org is the last admin")
	}
	attack := func() {
		t.Helper()
		_, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Disabled: ptr(true)})
		refused(err, "disabled")
		_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Role: ptr(User)})
		refused(err, "role")
		_, err = s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "alice"})
		refused(err, "account")
	}
	attack()
	s.add("carol", Admin)
	_, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "carol", Disabled: ptr(true)})
	is.NoErr(err)
	attack() // a disabled one does not count
	_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "carol", Disabled: ptr(false)})
	is.NoErr(err)
	_, err = s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "carol"})
	is.NoErr(err)
	attack() // nor does a deleted one
	s.add("dave", Admin)
	_, err = s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "alice"})
	is.NoErr(err)
}

// Each of two processes takes away another of two admins at once, many times and in different ways.
func TestTwoAdminsCannotTakeEachOtherAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	other := reopen(t, s.server)
	s.add("a", Admin)
	s.add("b", Admin)
	take := []func(*system, string) error{
		func(s *system, id string) error {
			_, err := s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: id})
			return err
		},
		func(s *system, id string) error {
			_, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: id, Role: ptr(User)})
			return err
		},
	}
	first, second := "a", "b"
	for i := range 20 {
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() { errs[0] = take[i%2](s, first) })
		both.Go(func() { errs[1] = take[(i/2)%2](other, second) })
		both.Wait()
		is.True((errs[0] == nil) != (errs[1] == nil)) // exactly one may
		is.NoErr(s.refresh(t.Context()))
		is.Equal(s.admins(), 1)
		left := first
		if errs[0] == nil {
			left = second
		}
		first, second = left, fmt.Sprintf("admin%d", i)
		s.add(second, Admin)
	}
}
