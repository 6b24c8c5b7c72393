package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The tables of the page begin with these lines.
const (
	listHead    = "| behaviour | OpenCode | shown by | relied on in |"
	resultsHead = "| behaviour |"
)

// writeResults writes the tables of the page.
func writeResults(version string, outcomes map[string]outcome) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := withResults(string(b), version, outcomes)
	if err != nil {
		return fmt.Errorf("write %s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// withResults returns the page with the list of behaviours, and with a column for the results of a version. Without a
// version it keeps the results, and adds and removes rows.
func withResults(text, version string, outcomes map[string]outcome) (string, error) {
	text, err := withTable(text, listHead, listTable())
	if err != nil {
		return "", err
	}
	old, err := table(text, resultsHead)
	if err != nil {
		return "", err
	}
	versions := cells(old[0])[1:]
	held := map[string]map[string]string{} // by behaviour and version
	for _, row := range old[2:] {
		c := cells(row)
		held[c[0]] = map[string]string{}
		for i, v := range versions {
			held[c[0]][v] = c[i+1]
		}
	}
	if version != "" && !slices.Contains(versions, version) {
		versions = append(versions, version)
	}
	slices.SortFunc(versions, compareVersions)
	rows := []string{row(append([]string{"behaviour"}, versions...)), strings.Repeat("|---", len(versions)+1) + "|"}
	for _, b := range behaviours {
		line := []string{"`" + b.id + "`"}
		for _, v := range versions {
			result := held[line[0]][v]
			if v == version {
				result = b.outcome(outcomes).String()
			}
			if result == "" {
				result = "–"
			}
			line = append(line, result)
		}
		rows = append(rows, row(line))
	}
	return withTable(text, resultsHead, rows)
}

// listTable returns the table of the behaviours.
func listTable() []string {
	rows := []string{listHead, "|---|---|---|---|"}
	for _, b := range behaviours {
		shown := make([]string, len(b.tests))
		for i, t := range b.tests {
			shown[i] = "`" + t.String() + "`"
		}
		if len(shown) == 0 {
			shown = []string{"not tested: " + b.untested}
		}
		used := make([]string, len(b.usedBy))
		for i, path := range b.usedBy {
			used[i] = "`" + path + "`"
		}
		rows = append(rows, row([]string{"`" + b.id + "`", b.sentence, strings.Join(shown, ", "), strings.Join(used, ", ")}))
	}
	return rows
}

func row(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }

func cells(row string) []string {
	all := strings.Split(strings.Trim(row, "|"), "|")
	for i, c := range all {
		all[i] = strings.TrimSpace(c)
	}
	return all
}

// bounds returns the lines of a table: the last one on the page that begins with head.
func bounds(lines []string, head string) (from, to int, err error) {
	from = -1
	for i, line := range lines {
		if strings.HasPrefix(line, head) {
			from = i
		}
	}
	if from < 0 {
		return 0, 0, fmt.Errorf("it has no table that begins with %q", head)
	}
	for to = from; to < len(lines) && strings.HasPrefix(lines[to], "|"); to++ {
	}
	return from, to, nil
}

func table(text, head string) ([]string, error) {
	lines := strings.Split(text, "\n")
	from, to, err := bounds(lines, head)
	if err != nil {
		return nil, err
	}
	return lines[from:to], nil
}

func withTable(text, head string, rows []string) (string, error) {
	lines := strings.Split(text, "\n")
	from, to, err := bounds(lines, head)
	if err != nil {
		return "", err
	}
	return strings.Join(slices.Concat(lines[:from], rows, lines[to:]), "\n"), nil
}

// compareVersions compares versions such as 1.18.33, number by number.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		m, errX := strconv.Atoi(x)
		n, errY := strconv.Atoi(y)
		if errX != nil || errY != nil {
			return strings.Compare(x, y)
		}
		return m - n
	})
}
