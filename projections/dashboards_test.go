package projections_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// The dashboards of compose's profile sqlpage read the file of the read model, in another process.
func TestDashboardsReadTheReadModel(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, s := expect.MemoryDir(t), &eventBuilder{t: t}
	m, err := projections.Open(t.Context(), dir, eventstest.Log(t))
	is.NoErr(err)
	defer m.Close()
	feed(t, m, s.created(), s.request("per_1", ses, "make"),
		s.own(events.PermissionReferred{Permission: "per_1", Reason: "a rule wants a person"}))
	files, err := filepath.Glob(filepath.Join(dir, "readmodel.v*.db"))
	is.NoErr(err)
	db, err := sql.Open("sqlite", "file:"+files[0]+"?mode=ro")
	is.NoErr(err)
	defer db.Close()
	pages, err := filepath.Glob("../ops/sqlpage/*.sql")
	is.NoErr(err)
	is.True(len(pages) > 3)
	shown := map[string]string{} // by title
	for _, page := range pages {
		text, err := os.ReadFile(page)
		is.NoErr(err)
		const host = "sqlpage.header('host')"
		expect.Contains(t, string(text), host) // before anything is shown
		sql := strings.Replace(strings.TrimSpace(string(text)), host, "'127.0.0.1:8080'", 1)
		for statement := range strings.SplitSeq(sql, ";\n") {
			values := query(t, db, page, statement)
			shown[values["title"]] = values["value"]
			if strings.HasSuffix(page, "requests.sql") && values["Chat"] != "" {
				is.Equal([]string{values["Chat"], values["Type"], values["Status"]}, []string{"Chat", "bash", "draft"})
				shown["a request"] = "is listed"
			}
		}
	}
	is.Equal([]string{shown["Chats"], shown["Pending requests"], shown["a request"]}, []string{"1", "1", "is listed"})
}

// query returns the first row of a statement, by column.
func query(t *testing.T, db *sql.DB, page, statement string) map[string]string {
	t.Helper()
	rows, err := db.Query(statement)
	if err != nil {
		t.Fatalf("%s: %v in:\n%s", page, err, statement)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	values, places := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		places[i] = &values[i]
	}
	row := map[string]string{}
	if rows.Next() {
		if err := rows.Scan(places...); err != nil {
			t.Fatal(err)
		}
		for i, c := range columns {
			row[c] = values[i].String
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v in:\n%s", page, err, statement)
	}
	return row
}
