package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"pocketcoder/events"
	"pocketcoder/projections"
)

const requestsUsage = `pocketcoder requests: list the requests and questions that wait for a person, in all chats, the oldest first.

  pocketcoder requests
  pocketcoder requests --json               for scripts
  pocketcoder chat h2k0x9c3v7m1q5z          decide those of a chat
  pocketcoder policy why 8f3kq0z2m4c6x1a    why a request was not decided by a rule

The list has requests for permission and questions of the assistant. A request that a rule decides is not in it.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

// pendingRequest is a request for permission, or a question, that waits for a person.
type pendingRequest struct {
	Chat  string `json:"chat"`
	ID    string `json:"id"`   // of its record: "pocketcoder policy why" takes that of a permission
	Type  string `json:"type"` // bash, edit, …, or question
	What  string `json:"what"`
	Why   string `json:"why,omitempty"` // the policy left it to a person
	Since string `json:"since"`
}

func runRequests(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "requests", requestsUsage)
	data := dataFlag(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	pending, err := s.requests(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(env.stdout, pending)
	}
	return printRequests(env.stdout, pending)
}

// requests lists what waits for a person, the oldest first.
func (s *system) requests(ctx context.Context) ([]pendingRequest, error) {
	last, err := s.log.Last(ctx)
	if err != nil {
		return nil, err
	}
	var permissions []projections.Permission
	if err := s.query(ctx, "permissions", map[string]any{"status": projections.PermissionDraft, "after": last}, &permissions); err != nil {
		return nil, err
	}
	var questions []projections.Question
	if err := s.query(ctx, "questions", map[string]any{"status": projections.QuestionAsked, "after": last}, &questions); err != nil {
		return nil, err
	}
	all := []pendingRequest{}
	for _, p := range permissions {
		if p.Referred || p.Interrupted { // the policy has not looked at the others yet
			all = append(all, pendingRequest{p.Chat, p.ID, p.Permission, strings.TrimPrefix(p.Message, p.Permission+": "), p.ReferredReason, p.Created})
		}
	}
	for _, q := range questions {
		all = append(all, pendingRequest{Chat: q.Chat, ID: q.ID, Type: "question", What: q.Question, Since: q.Created})
	}
	slices.SortStableFunc(all, func(a, b pendingRequest) int { return cmp.Compare(a.Since, b.Since) })
	return all, nil
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

// lastRequest is OpenCode's id of the newest request of a chat.
func (s *system) lastRequest(ctx context.Context, chat string) (id string, err error) {
	var newest uint64
	for _, subject := range []string{events.ChatOpenCodeSubject(chat, "permission.asked"), events.ChatSubject(chat, events.PermissionRequested{}.Kind())} {
		_, err := s.log.Fold(ctx, subject, 0, func(e events.Event) error {
			if e.Seq < newest {
				return nil
			}
			switch d, _ := events.Decode(e); d := d.(type) {
			case events.PermissionRequested:
				id, newest = d.Permission, e.Seq
			case events.OpenCode:
				id, newest = readOpenCode(d).ID, e.Seq
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	if id == "" {
		return "", fmt.Errorf("chat %s has no request yet", chat)
	}
	return id, nil
}
