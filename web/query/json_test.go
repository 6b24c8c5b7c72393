package query

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestStoredJSONIsValidatedAndCompacted(t *testing.T) {
	t.Parallel()
	for _, text := range jsonTexts {
		checkJSON(t, text)
	}
}

var jsonTexts = []string{
	`{}`, `[]`, ` { "a" : [ 1 , -2.5e+3 , true , false , null , "x\"\\\u00e9\n" ] , "b" : { } } `, "[1,\n2]", `"x"`, `0`,
	`-0`, `1.5`, `1E9`, `""`, "\t1\r\n",
	``, ` `, `{`, `[`, `[1,]`, `{"a":1,}`, `{"a"}`, `{a:1}`, `01`, `1.`, `.5`, `-`, `+1`, `1e`, `tru`, `nul`, `"x`,
	`"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", `[1 2]`, `{"a":1 "b":2}`, `1 2`, `]`, "\"\xff\"", `[[[[]]]]`,
	`{"a":{"b":[{}]}}`,
	strings.Repeat("[", 9999) + strings.Repeat("]", 9999), strings.Repeat("[", 20000), "\x00", "1\x00", `{"":""}`, `"\`,
	`"\u`, "'a'",
}

// checkJSON compares appendJSON with encoding/json.
func checkJSON(t *testing.T, text string) {
	t.Helper()
	got := string(appendJSON([]byte("before"), text, "null"))
	var want bytes.Buffer
	want.WriteString("before")
	if json.Valid([]byte(text)) {
		if err := json.Compact(&want, []byte(text)); err != nil {
			t.Fatal(err)
		}
	} else {
		want.WriteString("null")
	}
	if got != want.String() {
		t.Errorf("%.80q: got %.80q, want %.80q", text, got, want.String())
	}
}

func FuzzStoredJSON(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) < 9000 { // encoding/json counts the depth differently by one
			checkJSON(t, text)
		}
		var back string
		if err := json.Unmarshal(appendString(nil, text), &back); err != nil ||
			back != strings.ToValidUTF8(text, "\ufffd") && back != eachToReplacement(text) {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	})
}

// eachToReplacement replaces each byte that is not UTF-8 with a replacement character.
func eachToReplacement(text string) string { return string([]rune(text)) }
