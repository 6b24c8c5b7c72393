// Package query reads records as PocketBase does: pages of a list, single records, their expanded relations, and their
// JSON. It also evaluates the rules for changes, and finds the records that have changed. A Collection says where the
// rows of records are in SQL. A statement compiles PocketBase's filter and sort languages to conditions over them;
// access rules are written in the same language.
//
// Promises: every value of a client is bound, never written into SQL; names are looked up in the catalogue, never
// copied. A client's filter, sort or expand never reveals a record that the client may not list: a relation to it
// reads as empty. (PocketBase excludes the whole row.) Any input returns an answer, or an Invalid that names the
// parameter at fault, within limited time and memory. The SQL in a Collection and the access rules are trusted.
//
// Two things differ from PocketBase on purpose. No field equals @request.auth.… for a guest, so a record without an
// owner is not public. :each and :length work on JSON fields. The only request data is the account: @request.auth.
//
// It must not write, and must not know HTTP.
package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketbase/dbx"
)

// Query selects records and their order. The texts are PocketBase's query parameters of the same names.
type Query struct {
	Filter, Sort, Expand, Fields string
	Page, PerPage                int // Page counts from 1; PerPage is 30 by default, at most 1,000
	SkipTotal                    bool
	Large                        bool // no limit on the size of the records
}

// maxBytes returns the limit of the records in bytes, 0 for none.
func (q Query) maxBytes() int {
	if q.Large {
		return 0
	}
	return maxAnswer
}

var (
	// ErrNotFound means that the record does not exist, or that the client may not see it.
	ErrNotFound = errors.New("there is no such record")
	// ErrSuperusers means that the rule is nil, so that only superusers may do this.
	ErrSuperusers = errors.New("only superusers can perform this action")
)

// Page is a page of a list. The totals are -1 if the query skips them.
type Page struct {
	Page, PerPage, TotalItems, TotalPages int
	Items                                 []Record
}

// List returns a page of the records that match the list rule and the query's filter. Errors are Invalid,
// ErrSuperusers, or errors of the database.
func List(ctx context.Context, db dbx.Builder, cat Catalogue, c Collection, req Request,
	q Query) (Page, error) {
	if c.List == nil && !req.Superuser {
		return Page{}, ErrSuperusers
	}
	page := Page{Page: max(q.Page, 1), PerPage: q.PerPage, TotalItems: -1, TotalPages: -1}
	if page.PerPage <= 0 {
		page.PerPage = defaultPerPage
	}
	page.PerPage = min(page.PerPage, maxPerPage)
	offset := (min(page.Page, 1<<31) - 1) * page.PerPage

	err := within(ctx, queryTimeout, func(ctx context.Context) (err error) {
		query := snapshotQuery{ctx: ctx, db: db, statement: newStatement(cat, req), c: c, maxBytes: q.maxBytes()}
		if err := query.conditions(c.List, q.Filter); err != nil {
			return err
		}
		from, by, err := query.Order(c, q.Sort)
		if err != nil {
			return err
		}
		page.Items, err = query.page(q, order{from: from, by: by, limit: page.PerPage, offset: offset})
		if err != nil || q.SkipTotal {
			return err
		}
		page.TotalItems = offset + len(page.Items)
		if len(page.Items) == page.PerPage || len(page.Items) == 0 && offset > 0 { // otherwise this was the last page
			if page.TotalItems, err = query.count(); err != nil {
				return err
			}
		}
		page.TotalPages = (page.TotalItems + page.PerPage - 1) / page.PerPage
		return nil
	})
	if err != nil {
		return Page{}, describeError("list", c, err)
	}
	return page, nil
}

// View returns one record. Errors are Invalid, ErrSuperusers, ErrNotFound if there is no such record or the view rule
// hides it, or errors of the database.
func View(ctx context.Context, db dbx.Builder, cat Catalogue, c Collection, id string,
	req Request, q Query) (Record, error) {
	if c.View == nil && !req.Superuser {
		return Record{}, ErrSuperusers
	}
	var found []Record
	err := within(ctx, queryTimeout, func(ctx context.Context) (err error) {
		query := snapshotQuery{ctx: ctx, db: db, statement: newStatement(cat, req), c: c, maxBytes: q.maxBytes()}
		query.where = append(query.where, c.idColumn("t")+" = "+query.Bind(id))
		if err := query.conditions(c.View, ""); err != nil {
			return err
		}
		found, err = query.read(q, order{by: "1", limit: 1})
		return err
	})
	if err != nil {
		return Record{}, describeError("view", c, err)
	}
	if len(found) == 0 {
		return Record{}, ErrNotFound
	}
	return found[0], nil
}

// within runs run, and cancels it after limit.
func within(parent context.Context, limit time.Duration, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	err := run(ctx)
	if err != nil && ctx.Err() != nil && parent.Err() == nil {
		return newInvalid("filter", "too_slow", "it takes longer than %v: use a narrower filter", limit)
	}
	return err
}

func describeError(verb string, c Collection, err error) error {
	var i Invalid
	if errors.As(err, &i) {
		return i
	}
	return fmt.Errorf("%s %s: %w", verb, c.Name, err)
}

// Limits of a client's queries. Those marked with PocketBase have PocketBase's values.
const (
	defaultPerPage = 30   // PocketBase
	maxPerPage     = 1000 // PocketBase
	maxExpand      = 20   // paths
	maxFields      = 100
	maxBack        = 1000 // records that a back-relation expands to, PocketBase
	maxExpanded    = 10_000
	maxFirst       = 4000 // rows of a table that are searched first for a page; this takes a few ms
	// queryTimeout limits a query. Ordinary queries take milliseconds; the largest pages took over 3 s on two cores that
	// were busy with much else. A slower filter is likely an attack.
	queryTimeout = 10 * time.Second
	// maxAnswer limits the records of a response in bytes, with the records that they expand to.
	maxAnswer = 32 << 20
)

// TooLarge reports whether an error means that the records of a response are too large or expand to too many. A smaller
// page, or the same page without expand, may succeed.
func TooLarge(err error) bool {
	var i Invalid
	return errors.As(err, &i) && (i.Code == codeTooLarge || i.Code == codeTooMany)
}

const (
	codeTooLarge = "too_large"
	codeTooMany  = "too_many_records"
)

func tooLarge() Invalid {
	return newInvalid("perPage", codeTooLarge,
		"the records have more than %d bytes: request fewer records, or fewer fields", maxAnswer)
}
