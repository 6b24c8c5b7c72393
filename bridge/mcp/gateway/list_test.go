package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestTheListOfAllToolsIsBounded(t *testing.T) {
	t.Parallel()
	for tools, want := range map[int]error{15: nil, 17: errTooLarge} {
		is := is.New(t)
		server := mcp.NewServer(&mcp.Implementation{Name: "lab", Version: "1"}, &mcp.ServerOptions{PageSize: 1})
		for n := range tools { // each page is small enough
			mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprint("tool", n), Description: strings.Repeat("x", maxAnswer/16)},
				func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
					return nil, nil, nil
				})
		}
		near, far := mcp.NewInMemoryTransports()
		serving, err := server.Connect(t.Context(), far, nil)
		is.NoErr(err)
		defer serving.Close()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), near, nil)
		is.NoErr(err)
		defer session.Close()
		_, err = list(t.Context(), session)
		is.True(errors.Is(err, want))
	}
}
