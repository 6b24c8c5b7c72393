package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers/policy/display"
)

// Table writes a table to w: a header, and a row for each item. Without items it writes a line of text instead.
// Columns of the header are separated by tabs.
func Table[T any](w io.Writer, items []T, empty, header string, row func(T) []string) error {
	if len(items) == 0 {
		_, err := fmt.Fprintln(w, empty)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, header)
	for _, item := range items {
		fmt.Fprintln(t, strings.Join(row(item), "\t"))
	}
	return t.Flush()
}

func Chats(w io.Writer, chats []client.Chat) error {
	return Table(w, chats, "no chats yet; start one with: pocketcoder chat", "CHAT\tTURN\tLAST ACTIVE\tTITLE\tPREVIEW",
		func(c client.Chat) []string {
			return []string{c.ID, c.NextTurn(), display.LocalTime(c.LastActive), display.OneLine(c.Title, 30),
				display.OneLine(c.Preview, 60)}
		})
}

// Requests writes a table of requests that wait for a person to w.
func Requests(w io.Writer, pending []client.Request) error {
	return Table(w, pending, "no request waits for a person", "CHAT\tREQUEST\tSINCE\tTYPE\tWHAT\tWHY",
		func(r client.Request) []string {
			return []string{r.Chat, r.ID, display.LocalTime(r.Since), display.OneLine(r.Type, 20),
				display.OneLine(r.What, 60), display.OneLine(r.Why, 80)}
		})
}
