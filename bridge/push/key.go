package push

import (
	"context"
	"encoding/json"
	"fmt"

	"pocketcoder/events"
	"pocketcoder/handlers/model"
)

// typeKey is the type of a notification of a key that a provider of models refuses.
const typeKey = "provider_key"

// notifyKey notifies administrators of a key that a provider of models refuses. It withdraws the notification when the
// key works or is replaced. A record without a word about its key is nothing to notify of.
func (p *Push) notifyKey(ctx context.Context, e events.Event, saved events.Saved) error {
	type provider struct {
		ID       string  `json:"provider_id"`
		KeyError *string `json:"key_error"`
	}
	var now provider
	if json.Unmarshal(saved.Fields, &now) != nil || now.KeyError == nil {
		return nil
	}
	since, before := uint64(0), "" // sequence at which the refusal was recorded
	subject := events.ConfigSubject(model.Providers, e.Subject.ID, events.Saved{}.Kind())
	_, err := p.Log.Fold(ctx, subject, 0, func(one events.Event) error {
		d, err := events.Decode(one)
		if err != nil {
			return nil
		}
		was := provider{}
		_ = json.Unmarshal(d.(events.Saved).Fields, &was) // fields of other types are left empty
		text := ""
		if was.KeyError != nil {
			text = *was.KeyError
		}
		if text != "" && text != before {
			since = one.Seq
		}
		before = text
		return nil
	})
	if err != nil || since == 0 {
		return err
	}
	about := events.Subject{Scope: events.ScopeConfig, Collection: model.Providers, ID: e.Subject.ID}
	id := identify(model.Providers, e.Subject.ID, fmt.Sprint(since))
	n := events.Notice{Type: typeKey}
	if before == "" {
		return p.withdraw(ctx, e, id, n)
	}
	n.Title, _ = p.shown("The key of "+now.ID+" is refused", maxTitle)
	n.Message, _ = p.shownLines(before, maxShown)
	people, err := p.peopleOf(ctx, "", "")
	if err != nil {
		return err
	}
	return p.notify(ctx, about, id, people, n, e.ID)
}
