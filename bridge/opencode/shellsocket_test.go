package opencode

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/shellsocket"
)

func TestARequestArrivesByteForByte(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := shellsocket.Request{Session: "ses_1", Call: "call_72_0", Cwd: "/a b\n",
		Command: "printf '\xff'\n" + strings.Repeat("x", 300_000)}
	kind, body, err := shellsocket.NewReader(iotest.HalfReader(bytes.NewReader(r.Frame())), shellsocket.MaxRequest).Next()
	is.NoErr(err)
	is.Equal(kind, shellsocket.Requested)
	got, err := shellsocket.ParseRequest(body)
	is.NoErr(err)
	is.Equal(got, r)
	_, err = shellsocket.ParseRequest([]byte("ses_1\x00call"))
	is.True(err != nil)
}

func TestFramesArriveInOrderHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	var sent []byte
	var want []string
	for _, size := range []int{0, 1, 5, 100, shellsocket.MaxOutput, 0, shellsocket.MaxOutput, 3} {
		body := strings.Repeat("o", size)
		sent = shellsocket.Append(sent, shellsocket.Stdout, body)
		want = append(want, "o"+body)
	}
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "with the error": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			frames := shellsocket.NewReader(cut(bytes.NewReader(sent)), shellsocket.MaxOutput)
			for _, w := range want {
				kind, body, err := frames.Next()
				is.NoErr(err)
				is.Equal(string(kind)+string(body), w)
			}
			_, _, err := frames.Next()
			is.True(errors.Is(err, io.EOF))
		})
	}
}

func TestAFrameThatIsTooLongIsAnError(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	sent := shellsocket.Append(nil, shellsocket.Stdout, make([]byte, shellsocket.MaxOutput+1))
	_, _, err := shellsocket.NewReader(bytes.NewReader(sent), shellsocket.MaxOutput).Next()
	is.True(err != nil)
}
