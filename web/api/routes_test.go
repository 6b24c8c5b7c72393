package api

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &Server{}
	others := []Route{{Method: AnyMethod, Path: "/api/others/{id}/{path...}", Access: Accounts, Media: "*/*"}}
	described := map[string]bool{}
	for path, methods := range s.Document(others...).Paths {
		for method := range methods {
			described[strings.ToUpper(method)+" "+path] = true
		}
	}
	for _, r := range s.routes(others) {
		operation := r.method() + " " + strings.ReplaceAll(r.Path, "...}", "}")
		is.True(described[operation]) // the route
		delete(described, operation)
	}
	is.Equal(len(described), 0) // and nothing else
}
