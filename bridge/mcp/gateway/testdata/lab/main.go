// Command lab is the MCP server of the tests: over stdio, or over HTTP at the address in its argument.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type text struct {
	Text string `json:"text"`
}

func say(text string) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

// form is what the tool ask asks for.
var form = json.RawMessage(`{"type":"object","required":["age","colour"],"properties":{
	"age":{"type":"integer","title":"Age"},"colour":{"type":"string","enum":["red","blue"],"description":"the best one"},
	"note":{"type":"string"}}}`)

func addEcho(to *mcp.Server, description string) {
	mcp.AddTool(to, &mcp.Tool{Name: "echo", Description: description},
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			return say(in.Text)
		})
}

// fetch also uses the proxy for addresses of this machine, unlike http.ProxyFromEnvironment.
func fetch(address string) string {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) {
			if proxy := os.Getenv("HTTP_PROXY"); proxy != "" {
				return url.Parse(proxy)
			}
			return nil, nil
		}}}
	answer, err := client.Get(address)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "lab", Version: "1.0.0"}, nil)
	addEcho(server, cmp.Or(os.Getenv("LAB_ECHO"), "says it back"))
	add := func(name, description string, run func(string) string) {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: description},
			func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
				return say(run(in.Text))
			})
	}
	add("variable", "returns a variable of the environment", os.Getenv)
	add("fetch", "fetches a URL", fetch)
	add("change", "changes the description of echo", func(description string) string {
		addEcho(server, description)
		return "changed"
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "asks the person"},
		func(_ context.Context, r *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			answer, answered := r.Params.InputResponses["form"].(*mcp.ElicitResult)
			if !answered {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
					"form": &mcp.ElicitParams{Mode: "form", Message: in.Text, RequestedSchema: form}}}, nil, nil
			}
			content, err := json.Marshal(answer.Content)
			if err != nil {
				return nil, nil, err
			}
			return say(answer.Action + " " + string(content))
		})
	add("large", "returns a text of some MiB", func(mib string) string {
		n, _ := strconv.Atoi(mib)
		return strings.Repeat("x", n<<20)
	})
	add("hang", "never answers", func(string) string { select {} })
	add("exit", "ends the server", func(string) string {
		fmt.Fprintln(os.Stderr, "asked to exit")
		os.Exit(3)
		return ""
	})
	if len(os.Args) < 2 {
		_ = server.Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	theServer := func(*http.Request) *mcp.Server { return server }
	events := mcp.NewStreamableHTTPHandler(theServer, nil)
	bodies := mcp.NewStreamableHTTPHandler(theServer, &mcp.StreamableHTTPOptions{JSONResponse: true})
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Lab") != os.Getenv("LAB_SECRET") {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/bodies" {
			bodies.ServeHTTP(w, r)
			return
		}
		events.ServeHTTP(w, r)
	}))
}
