package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

func printChats(w io.Writer, chats []listedChat) error {
	if len(chats) == 0 {
		_, err := fmt.Fprintln(w, "no chats yet; begin one with: pocketcoder chat")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHAT\tTURN\tLAST ACTIVE\tTITLE\tPREVIEW")
	for _, c := range chats {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.ID, c.turn(), localTime(c.LastActive), oneLine(c.Title, 30), oneLine(c.Preview, 60))
	}
	return t.Flush()
}

func printRequests(w io.Writer, pending []pendingRequest) error {
	if len(pending) == 0 {
		_, err := fmt.Fprintln(w, "no request waits for a person")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHAT\tREQUEST\tSINCE\tTYPE\tWHAT\tWHY")
	for _, r := range pending {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Chat, r.ID, localTime(r.Since), oneLine(r.Type, 20), oneLine(r.What, 60), oneLine(r.Why, 80))
	}
	return t.Flush()
}
