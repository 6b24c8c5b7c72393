// Package shellsocket is the protocol between pocketcoder-shell and the bridge, over a stream socket:
//
//	shell                                    bridge
//	  ── Secret ───────────────────────────▶   over TCP
//	  ── Request ──────────────────────────▶
//	  ◀─────────────────────────── Accepted    from here on the command may run
//	  ◀────────────────── Stdout and Stderr    in the order of the command's output
//	  ── Cancel ───────────────────────────▶   optional; closing the connection cancels the command too
//	  ◀─────────────────────────── Finished
//
// A frame is one byte for its kind, four bytes for the length of its body (most significant byte first), and the body.
// A connection carries one command. A slow shell slows the command: the bridge reads no more output than the socket
// takes.
//
// The package uses little of the standard library, because pocketcoder-shell links it and starts once per command.
package shellsocket

import (
	"errors"
	"io"
	"strings"
)

// Variable names the environment variable that holds the address of the bridge's socket, such as unix:/data/shell.sock.
const Variable = "POCKETCODER_SOCKET"

// Unix is the prefix of an address that names a Unix socket. The path follows.
const Unix = "unix:"

// TCP is the prefix of an address that names a port of 127.0.0.1. The port, a slash and a secret follow. It is for
// isolation levels that deny Unix sockets, because the program could open any Unix socket of the machine there.
const TCP = "tcp:"

type Kind byte

const (
	Secret    Kind = 's' // over TCP, before the request: the secret of the address
	Requested Kind = 'r' // a Request
	Cancel    Kind = 'c' // no body
	Accepted  Kind = 'a' // no body
	Stdout    Kind = 'o' // raw bytes
	Stderr    Kind = 'e' // raw bytes
	Finished  Kind = 'f' // the exit code in one byte, then a line for the person, which may be empty
)

// Limits of a frame's body, in bytes. Linux takes 128 KiB in one argument or environment variable.
const (
	MaxRequest = 512 << 10
	MaxOutput  = 64 << 10
)

const headerSize = 5

// Request asks the bridge to run a command.
type Request struct {
	Session string // OpenCode's session id
	Call    string // OpenCode's id of the tool call
	Cwd     string // absolute
	Command string
}

// separator stands between the fields of a request. No argument, environment variable or path contains it.
const separator = "\x00"

func (r Request) Frame() []byte {
	return Append(nil, Requested, strings.Join([]string{r.Session, r.Call, r.Cwd, r.Command}, separator))
}

func ParseRequest(body []byte) (Request, error) {
	fields := strings.SplitN(string(body), separator, 4)
	if len(fields) != 4 {
		return Request{}, errors.New("the request lacks a field")
	}
	return Request{fields[0], fields[1], fields[2], fields[3]}, nil
}

func Append[B []byte | string](b []byte, kind Kind, body B) []byte {
	n := len(body)
	b = append(b, byte(kind), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(b, body...)
}

type Reader struct {
	r        io.Reader
	max      int // bytes of a body
	buf      []byte
	from, to int // buf[from:to] has been read but not returned
}

// NewReader returns a reader of frames with bodies of at most max bytes.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{r: r, max: max, buf: make([]byte, headerSize+min(max, MaxOutput))}
}

// Next returns the next frame. The body is valid until the next call. It returns io.EOF if the connection ended, also
// in the middle of a frame.
func (r *Reader) Next() (Kind, []byte, error) {
	if err := r.fill(headerSize); err != nil {
		return 0, nil, err
	}
	h := r.buf[r.from:]
	n := int(h[1])<<24 | int(h[2])<<16 | int(h[3])<<8 | int(h[4])
	if n > r.max {
		return 0, nil, errors.New("a frame is longer than allowed")
	}
	if err := r.fill(headerSize + n); err != nil {
		return 0, nil, err
	}
	frame := r.buf[r.from : r.from+headerSize+n]
	r.from += len(frame)
	return Kind(frame[0]), frame[headerSize:], nil
}

func (r *Reader) fill(n int) error {
	if len(r.buf)-r.from < n {
		buf := r.buf
		if len(buf) < n {
			buf = make([]byte, n)
		}
		r.from, r.to, r.buf = 0, copy(buf, r.buf[r.from:r.to]), buf
	}
	for r.to-r.from < n {
		got, err := r.r.Read(r.buf[r.to:])
		r.to += got
		if err != nil && r.to-r.from < n {
			return err
		}
	}
	return nil
}
