package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pocketbase/dbx"
)

// View calls fn with the rows of one moment: all queries of db see the events up to seq and none after it, whatever is
// committed meanwhile. The queries can only read, and they end with ctx. fn must use db alone, and must read the
// result of a query to its end before the next query. View returns an error of fn unchanged.
func (m *Model) View(ctx context.Context, fn func(db dbx.Builder, seq uint64) error) error {
	m.use.RLock()
	defer m.use.RUnlock()
	return m.current.view(ctx, fn)
}

func (f *file) view(ctx context.Context, fn func(db dbx.Builder, seq uint64) error) error {
	v, err := f.acquireViewer(ctx)
	if err != nil {
		return fmt.Errorf("view read models: %w", err)
	}
	defer f.releaseViewer(v)
	seq, err := v.begin(ctx)
	if err != nil {
		return fmt.Errorf("view read models: %w", err)
	}
	return fn(reader{dbx.NewSqliteBuilder(f.readers.WithContext(ctx), v), ctx, v.parsed}, seq)
}

// maxParsed is the length of the longest query that a reader keeps, in bytes. Clients choose filters, so they could
// choose many long ones.
const maxParsed = 16 << 10

// reader makes the queries of a view. It keeps what dbx has parsed: finding the placeholders of a query takes half as
// long as running it (measured: 0.1 ms).
type reader struct {
	dbx.Builder
	ctx    context.Context
	parsed map[string]*dbx.Query
}

func (r reader) NewQuery(sql string) *dbx.Query {
	if len(sql) > maxParsed {
		return r.Builder.NewQuery(sql)
	}
	q, known := r.parsed[sql]
	if !known {
		if len(r.parsed) >= maxStatements {
			clear(r.parsed)
		}
		q = r.Builder.NewQuery(sql).WithContext(context.Background()) // not of this view, which ends
		r.parsed[sql] = q
	}
	own := *q
	return own.WithContext(r.ctx)
}

// maxViews is the number of views that run at once. Further views wait.
const maxViews = 12

// viewer is a connection for views.
type viewer struct {
	*connection
	parsed map[string]*dbx.Query
	open   bool // a transaction is open
}

// acquireViewer returns an idle viewer, or a new one.
func (f *file) acquireViewer(ctx context.Context) (*viewer, error) {
	select {
	case f.views <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case v := <-f.viewers:
		return v, nil
	default:
	}
	conn, err := f.readers.DB().Conn(ctx)
	if err != nil {
		<-f.views
		return nil, err
	}
	return &viewer{connection: newConnection(conn), parsed: map[string]*dbx.Query{}}, nil
}

// releaseViewer makes the viewer idle, or closes it if its transaction cannot be ended.
func (f *file) releaseViewer(v *viewer) {
	if err := v.end(); err != nil {
		_ = v.close() // the connection is lost either way
	} else {
		f.viewers <- v
	}
	<-f.views
}

// begin starts a transaction. ctx must not end BEGIN: the driver returns the error of ctx although the transaction has
// started, and every later BEGIN on this connection would fail.
func (v *viewer) begin(ctx context.Context) (seq uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ctx = context.WithoutCancel(ctx)
	if _, err := v.ExecContext(ctx, "BEGIN"); err != nil {
		return 0, err
	}
	v.open = true
	begun, err := v.prepare(ctx, "SELECT seq FROM checkpoint") // the first read fixes the moment
	if err != nil {
		return 0, err
	}
	return seq, begun.QueryRowContext(ctx).Scan(&seq)
}

func (v *viewer) end() error {
	if !v.open {
		return nil
	}
	v.open = false
	_, err := v.ExecContext(context.Background(), "ROLLBACK")
	return err
}

// The methods that dbx calls.

func (v *viewer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := v.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

func (v *viewer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := v.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (v *viewer) Exec(query string, args ...any) (sql.Result, error) {
	return v.ExecContext(context.Background(), query, args...)
}

func (v *viewer) Query(query string, args ...any) (*sql.Rows, error) {
	return v.QueryContext(context.Background(), query, args...)
}

func (v *viewer) Prepare(query string) (*sql.Stmt, error) {
	return v.conn.PrepareContext(context.Background(), query) // the caller closes it
}
