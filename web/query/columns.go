package query

import (
	"regexp"
	"strings"

	"pocketcoder/handlers/record"
)

// over rewrites trusted SQL over the row t to another alias.
func over(sql, alias string) string {
	if alias == "t" || !strings.Contains(sql, "t.") {
		return sql
	}
	var b strings.Builder
	var quote byte
	for i := 0; i < len(sql); i++ {
		c := sql[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == 't' && i+1 < len(sql) && sql[i+1] == '.' && (i == 0 || !wordByte(sql[i-1])):
			b.WriteString(alias)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// isWord reports whether s holds only letters, digits and underscores of ASCII, at least one.
func isWord(s string) bool {
	for i := range len(s) {
		if !wordByte(s[i]) || s[i] >= 0x80 {
			return false
		}
	}
	return s != ""
}

func (c Collection) idColumn(alias string) string {
	if c.Key == "" {
		return alias + ".id"
	}
	return over(c.Key, alias)
}

// column returns the SQL of a field's value. Values that JSON or a subquery does not have read as empty, as
// PocketBase's columns do.
func (c Collection) column(f Field, alias string) string {
	if f.SQL == "" {
		if f.Name == "id" {
			return c.idColumn(alias)
		}
		return alias + `."` + f.Name + `"`
	}
	sql := over(f.SQL, alias)
	if name, ok := strings.CutPrefix(f.SQL, "t."); ok && isWord(name) {
		return sql
	}
	switch {
	case f.Kind == record.JSON:
		return sql
	case f.Kind == record.Number || f.Kind == record.Bool:
		return "coalesce(" + sql + ", 0)"
	}
	return "coalesce(" + sql + ", '')"
}

// conditions returns the conditions under which a row of the table is a record of the collection.
func (c Collection) conditions(alias string, tombstones bool) (list []string) {
	if c.Where != "" {
		list = append(list, "("+over(c.Where, alias)+")")
	}
	if c.Live != "" && !tombstones {
		list = append(list, "("+over(c.Live, alias)+")")
	}
	return list
}

var via = regexp.MustCompile(`^(\w+)_via_(\w+)$`)

// backRelation returns the collection and field that collection_via_field names, if the field points to c.
func (c Catalogue) backRelation(to Collection, segment string) (Collection, Field, bool) {
	parts := via.FindStringSubmatch(segment)
	if parts == nil {
		return Collection{}, Field{}, false
	}
	from, ok := c.Get(parts[1])
	f, found := from.Field(parts[2])
	target, known := c.Get(f.Relation)
	return from, f, ok && found && known && f.Kind == record.Relation && target.ID == to.nameID()
}
