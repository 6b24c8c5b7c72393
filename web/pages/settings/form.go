package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// shownPrefix is before the name of a field in the name of the hidden field with the text that the form showed. It
// differs from that of the record if another person has changed the record since, or if the record has hidden
// characters.
const shownPrefix = "shown_"

// newRecord stands for the id of a record that does not exist yet.
const newRecord = "new"

// input is a field of a form.
type input struct {
	record.Field
	id         string // of the element, one of a kind on the page
	value      string
	sendsShown bool          // the form sends along the text that it showed
	options    []site.Option // of a select
}

// inputsOf returns the fields of the form of a record, or of a new one, with the values that value returns.
func (v view) inputsOf(id string, value func(record.Field) string) (all []input) {
	for _, f := range v.form.Fields {
		in := input{Field: f, id: id + "-" + f.Name, value: value(f),
			sendsShown: id != newRecord && f.Kind != record.Secret}
		switch f.Kind {
		case record.Bool:
			in.options = []site.Option{{Value: "false", Text: "no"}, {Value: "true", Text: "yes"}}
			in.value = strconv.FormatBool(in.value == "true")
		case record.Select:
			if !f.Required || in.value == "" {
				in.options = []site.Option{{Text: choiceText(f, "")}}
			}
			for _, value := range f.Values {
				in.options = append(in.options, site.Option{Value: value, Text: choiceText(f, value)})
			}
		case record.Relation:
			in.options = append([]site.Option{{Text: choiceText(f, "")}}, v.related[f.Relation]...)
		}
		all = append(all, in)
	}
	return all
}

// newInputs returns the fields of the form of a new record.
func (v view) newInputs() []input {
	return v.inputsOf(newRecord, func(f record.Field) string {
		if v.draft != nil {
			return v.draft(f.Name)
		}
		if value, ok := v.form.Defaults[f.Name]; ok {
			return fmt.Sprint(value)
		}
		return ""
	})
}

// fieldsIn returns the fields of a form whose text differs from the text that the form showed, by default from that of
// the record.
func (s Settings) fieldsIn(r *http.Request, collection string, now func(record.Field) string) (map[string]any, error) {
	form, _ := s.Records.Collections.FormOf(collection)
	fields := map[string]any{}
	for _, f := range form.Fields {
		text := site.Field(r, f.Name)
		before := now(f)
		if r.PostForm.Has(shownPrefix + f.Name) {
			before = site.Field(r, shownPrefix+f.Name)
		}
		if !r.PostForm.Has(f.Name) || text == before {
			continue
		}
		value, err := valueOf(f, text, r.PostFormValue("time_zone"))
		if err != nil {
			return nil, err
		}
		fields[f.Name] = value
	}
	return fields, nil
}

// valueOf returns the value of a field that a person wrote as text. zone is that of times, empty for the server's.
func valueOf(f record.Field, text, zone string) (any, error) {
	switch f.Kind {
	case record.Date:
		if _, err := record.ParseDate(text); err == nil {
			return text, nil // as the API writes it
		}
		return schedule.ParseTime(f.Name, text, zone)
	case record.Number:
		if text == "" {
			return nil, nil
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, api.BadField(f.Name, "validation_invalid_type", "%s: must be a number, not %q",
				f.Name, api.Truncate(text, 40))
		}
		return n, nil
	case record.Bool:
		return text == "true", nil
	case record.JSON:
		if f.Texts || f.Pairs {
			return linesOf(f, text)
		}
		if text != "" && !json.Valid([]byte(text)) {
			return nil, api.BadField(f.Name, "validation_invalid_type", "%s: must be JSON", f.Name)
		}
		if text == "" {
			return nil, nil
		}
		return json.RawMessage(text), nil
	}
	return text, nil
}

// linesOf returns the list or the object that a person wrote in lines.
func linesOf(f record.Field, text string) (any, error) {
	list, pairs := []string{}, map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if f.Pairs && !ok {
			return nil, api.BadField(f.Name, "validation_invalid_value", "%s: write NAME=VALUE in each line", f.Name)
		}
		list, pairs[strings.TrimSpace(name)] = append(list, line), strings.TrimSpace(value)
	}
	if f.Pairs {
		return pairs, nil
	}
	return list, nil
}

// formText returns a field of a record as a form shows it.
func formText(f record.Field, r query.Record) string {
	text := fieldText(r, f.Name)
	var list []string
	var pairs map[string]string
	switch {
	case f.Texts && json.Unmarshal([]byte(text), &list) == nil:
		return strings.Join(list, "\n")
	case f.Pairs && json.Unmarshal([]byte(text), &pairs) == nil:
		for _, name := range slices.Sorted(maps.Keys(pairs)) {
			list = append(list, name+"="+pairs[name])
		}
		return strings.Join(list, "\n")
	}
	return text
}

// fieldText returns a field of a record as the text that a person edits, "" for a number that is not set.
func fieldText(r query.Record, name string) string {
	if !r.IsSet(name) {
		return ""
	}
	switch v := r.Get(name).(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case json.RawMessage:
		if string(v) != "null" {
			return string(v)
		}
	}
	return ""
}
