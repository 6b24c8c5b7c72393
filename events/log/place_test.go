package log_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/log/place"
	"pocketcoder/expect"
)

func TestOnlyASafeStoreIsAccepted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, url := range []string{"s3://b/p", "s3://b", "s3://b/p?endpoint=https://s3.example.org&region=eu-1",
		"s3://b/p?endpoint=http://127.0.0.1:9000", "s3://b/p?endpoint=http://[::1]:9000"} {
		is.NoErr(place.CheckStore(url))
	}
	for url, want := range map[string]string{
		"s3://":               "want s3://BUCKET",
		"s3://key:secret@b/p": "without credentials",
		"s3://b/p?endpoint=http://s3.example.org":             "want https",
		"s3://b/p?endpoint=http://192.0.2.1:9000":             "want https",
		"s3://b/p?endpoint=s3.example.org":                    "want https://HOST",
		"s3://b/p?endpoint=https://s3.example.org/x":          "want https://HOST",
		"s3://b/p?secret=x":                                   "unknown parameter",
		"s3://b/p?endpoint=https://key:hidden@s3.example.org": "without credentials",
		"s3://b/p?endpoint=https://s3.example.org?key=hidden": "without credentials",
		"s3://key:hidden@b/%zz":                               "without credentials",
	} {
		err := place.CheckStore(url)
		is.True(err != nil) // url
		expect.Contains(t, err.Error(), want)
		expect.Lacks(t, err.Error(), "hidden")
	}
}
