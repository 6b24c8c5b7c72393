package render

import (
	"fmt"
	"io"
	"text/tabwriter"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
)

// Chats writes a table of chats to w.
func Chats(w io.Writer, chats []client.Chat) error {
	if len(chats) == 0 {
		_, err := fmt.Fprintln(w, "no chats yet; begin one with: pocketcoder chat")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHAT\tTURN\tLAST ACTIVE\tTITLE\tPREVIEW")
	for _, c := range chats {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.ID, c.NextTurn(), printable.LocalTime(c.LastActive), printable.OneLine(c.Title, 30), printable.OneLine(c.Preview, 60))
	}
	return t.Flush()
}

// Requests writes a table of requests that wait for a person to w.
func Requests(w io.Writer, pending []client.Request) error {
	if len(pending) == 0 {
		_, err := fmt.Fprintln(w, "no request waits for a person")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHAT\tREQUEST\tSINCE\tTYPE\tWHAT\tWHY")
	for _, r := range pending {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Chat, r.ID, printable.LocalTime(r.Since), printable.OneLine(r.Type, 20), printable.OneLine(r.What, 60), printable.OneLine(r.Why, 80))
	}
	return t.Flush()
}
