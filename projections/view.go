package projections

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pocketbase/dbx"
)

// View calls fn with the read models as they are at one moment, whatever is committed meanwhile: all queries of db see the
// events up to seq and none after it. They end with ctx, and only read. fn asks db alone: another query of the model's
// would wait for a connection that fn holds. An error of fn is given back as it is.
func (m *Model) View(ctx context.Context, fn func(db dbx.Builder, seq uint64) error) error {
	m.use.RLock()
	defer m.use.RUnlock()
	return m.current.view(ctx, fn)
}

func (f *file) view(ctx context.Context, fn func(db dbx.Builder, seq uint64) error) error {
	tx, seq, err := f.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("view read models: %w", err)
	}
	defer tx.Rollback()
	if err := fn(f.readers.WithContext(ctx).Wrap(tx), seq); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // a query that was cut short may say nothing and give less
		return fmt.Errorf("view read models: %w", err)
	}
	return nil
}

// snapshot gives a transaction that sees the file as it is now, whatever is committed meanwhile, and its checkpoint.
func (f *file) snapshot(ctx context.Context) (*sql.Tx, uint64, error) {
	tx, err := f.readers.DB().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	var seq uint64
	if err := tx.QueryRowContext(ctx, "SELECT seq FROM checkpoint").Scan(&seq); err != nil { // the first read fixes what it sees
		tx.Rollback()
		return nil, 0, err
	}
	return tx, seq, nil
}
