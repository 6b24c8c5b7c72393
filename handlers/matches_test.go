package handlers

import (
	"testing"

	"github.com/matryer/is"
)

func TestMatches(t *testing.T) {
	for filter, c := range map[string]struct{ yes, no string }{
		"evt.chat.c1.*":            {"evt.chat.c1.created", "evt.chat.c1.message.submitted"},
		"evt.chat.c1.permission.*": {"evt.chat.c1.permission.decided", "evt.chat.c2.permission.decided"},
		"evt.config.sops.*.*":      {"evt.config.sops.s1.saved", "evt.config.tools.s1.saved"},
		"evt.chat.c1.created":      {"evt.chat.c1.created", "evt.chat.c1"},
	} {
		is := is.New(t)
		is.True(matches(filter, c.yes))
		is.True(!matches(filter, c.no))
	}
}
