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
		text := value(f)
		if len(f.Parts) == 0 {
			all = append(all, v.inputOf(id, f, text))
		}
		for _, part := range f.Parts {
			shown := part
			shown.Name, shown.Label = f.PartName(part), f.Title()+": "+part.Title()
			all = append(all, v.inputOf(id, shown, part.PartText(text)))
		}
	}
	return all
}

func (v view) inputOf(id string, f record.Field, value string) input {
	in := input{Field: f, id: id + "-" + f.Name, value: value, sendsShown: id != newRecord && f.Kind != record.Secret}
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
	return in
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
	return record.ParseTexts(form.Fields, now, func(name, before string) (string, bool) {
		return changedText(r, name, before)
	}, func(f record.Field, text string) (any, error) { return f.Parse(text, r.PostFormValue("time_zone")) })
}

// changedText returns a text of a form, and whether it differs from the text that the form showed, by default before.
func changedText(r *http.Request, name, before string) (text string, changed bool) {
	if r.PostForm.Has(shownPrefix + name) {
		before = site.Field(r, shownPrefix+name)
	}
	text = site.Field(r, name)
	return text, r.PostForm.Has(name) && text != before
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
