package store

import (
	"context"
	"database/sql"
	"errors"
)

// connection keeps its prepared statements, because statements are repeated and preparing one takes longer than finding
// a row (measured: 0.15 ms and 0.02 ms). It prepares a statement on first use: few of all are used soon.
type connection struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	bytes      int // of their texts
}

// The most statements that a connection keeps, and bytes of their texts. If it has so many, it closes them all. Clients
// choose filters, so they could choose many long ones.
const (
	maxStatements = 256
	maxTexts      = 1 << 20
)

func newConnection(conn *sql.Conn) *connection {
	return &connection{conn: conn, statements: map[string]*sql.Stmt{}}
}

func (c *connection) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := c.statements[query]; ok {
		return s, nil
	}
	if len(c.statements) >= maxStatements || c.bytes+len(query) > maxTexts {
		_ = c.closeStatements() // this only frees memory
	}
	s, err := c.conn.PrepareContext(ctx, query)
	if err == nil {
		c.statements[query] = s
		c.bytes += len(query)
	}
	return s, err
}

// close closes the statements and the connection. The file cannot be closed while one of them is open.
func (c *connection) close() error {
	return errors.Join(c.closeStatements(), c.conn.Close())
}

func (c *connection) closeStatements() (err error) {
	for _, s := range c.statements {
		err = errors.Join(err, s.Close())
	}
	clear(c.statements)
	c.bytes = 0
	return err
}
