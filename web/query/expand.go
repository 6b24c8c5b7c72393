package query

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"
)

// branches are the relations to expand. Below each relation are those to expand in its related records.
type branches map[string]branches

// parseExpand reads a list like "chat.user,prompt".
func parseExpand(text string) (branches, error) {
	if len(text) > maxText {
		return nil, tooLong("expand", text)
	}
	root, n := branches{}, 0
	for path := range strings.SplitSeq(text, ",") {
		path = strings.Trim(strings.ReplaceAll(path, " ", ""), ".")
		if path == "" {
			continue
		}
		if n++; n > maxExpand {
			return nil, newInvalid("expand", "too_many_fields", "it has more than %d paths", maxExpand)
		}
		if strings.Count(path, ".") >= maxPath {
			return nil, newInvalid("expand", "too_deep", "a path follows more than %d relations", maxPath)
		}
		at := root
		for name := range strings.SplitSeq(path, ".") {
			if at[name] == nil {
				at[name] = branches{}
			}
			at = at[name]
		}
	}
	return root, nil
}

// expander adds related records to records, as far as the view rules allow. It runs one query for each relation of a
// level.
type expander struct {
	ctx       context.Context
	db        dbx.Builder
	cat       Catalogue
	req       Request
	remaining int // number of records that may still be read
	maxBytes  int // limit in bytes of each read; 0 for none
}

func pointers(list []Record) []*Record {
	all := make([]*Record, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// expand follows the branches from records of a collection. It ignores relations that do not exist, as PocketBase does.
func (e *expander) expand(c Collection, parents []*Record, tree branches, shown *fieldSelection) error {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		p, ok := shown.selected(name)
		if !ok || len(parents) == 0 {
			continue
		}
		var to Collection
		var links map[string][]*Record
		var err error
		f, forward := c.Field(name)
		if forward {
			if to, ok = e.cat.Get(f.Relation); !ok {
				continue
			}
			links, err = e.forward(to, f, parents, tree[name], p)
		} else {
			if to, f, ok = e.cat.backRelation(c, name); !ok {
				continue
			}
			links, err = e.back(to, f, parents, tree[name], p)
		}
		if err != nil {
			return err
		}
		if err := e.attach(to, name, !forward, parents, links, tree[name], p); err != nil {
			return err
		}
	}
	return nil
}

// attach expands the related records, and adds them to their parents. The parents are found by id.
func (e *expander) attach(to Collection, name string, several bool, parents []*Record,
	links map[string][]*Record, tree branches, shown *fieldSelection) error {
	below, ok := shown.selected("expand")
	if len(tree) > 0 && ok {
		var all []*Record
		for _, related := range links {
			all = append(all, related...)
		}
		if err := e.expand(to, unique(all), tree, below); err != nil {
			return err
		}
	}
	for _, parent := range parents {
		if related := links[parent.id]; len(related) > 0 {
			parent.expanded = append(parent.expanded, expansion{name, several, related})
		}
	}
	return nil
}

func unique(list []*Record) []*Record {
	seen := map[*Record]bool{}
	return slices.DeleteFunc(list, func(r *Record) bool {
		was := seen[r]
		seen[r] = true
		return was
	})
}

// forward reads the records to which a relation of the parents points.
func (e *expander) forward(to Collection, f Field, parents []*Record, tree branches,
	shown *fieldSelection) (map[string][]*Record, error) {
	wanted := map[string]bool{}
	for _, parent := range parents {
		if id := parent.related(f); id != "" {
			wanted[id] = true
		}
	}
	found, err := e.read(to, tree, shown, slices.Sorted(maps.Keys(wanted)), func(q *snapshotQuery, list string) string {
		return to.idColumn("t") + " IN (" + list + ")"
	})
	if err != nil {
		return nil, err
	}
	byID := map[string]*Record{}
	for _, r := range found {
		byID[r.id] = r
	}
	links := map[string][]*Record{}
	for _, parent := range parents {
		if r := byID[parent.related(f)]; r != nil {
			links[parent.id] = []*Record{r}
		}
	}
	return links, nil
}

// back reads the records whose relation points to the parents. The oldest record of each parent comes first.
func (e *expander) back(from Collection, f Field, parents []*Record, tree branches,
	shown *fieldSelection) (map[string][]*Record, error) {
	ids := make([]string, len(parents))
	for i, parent := range parents {
		ids[i] = parent.id
	}
	more := branches{f.Name: branches{}} // reads the relation, which names the parent
	maps.Copy(more, tree)
	found, err := e.read(from, more, shown, ids, func(q *snapshotQuery, list string) string {
		q.group = from.column(f, "t")
		return q.group + " IN (" + list + ")"
	})
	if err != nil {
		return nil, err
	}
	links := map[string][]*Record{}
	for _, r := range found {
		if id := r.related(f); len(links[id]) < maxBack {
			links[id] = append(links[id], r)
		}
	}
	return links, nil
}

// read reads the records of a collection that match a condition on a list of ids and the view rule.
func (e *expander) read(c Collection, tree branches, shown *fieldSelection, ids []string,
	on func(q *snapshotQuery, list string) string) ([]*Record, error) {
	if c.View == nil && !e.req.Superuser || len(ids) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	q := snapshotQuery{ctx: e.ctx, db: e.db, statement: newStatement(e.cat, e.req), c: c, maxBytes: e.maxBytes}
	q.where = append(q.where, on(&q, "SELECT value FROM json_each("+q.Bind(string(list))+")"))
	if err := q.conditions(c.View, ""); err != nil {
		return nil, err
	}
	found, err := q.scan(newShape(c, e.req, shown, tree), order{by: "t.first_seq, k", limit: e.remaining + 1})
	if err != nil {
		return nil, err
	}
	if e.remaining -= len(found); e.remaining < 0 {
		return nil, newInvalid("expand", codeTooMany, "it leads to more than %d records: request smaller pages",
			maxExpanded)
	}
	return pointers(found), nil
}
