package place

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Object is the URL of an object: s3://BUCKET/KEY?endpoint=URL&region=NAME. Without an endpoint the store is that of
// AWS; without a region it is us-east-1.
//
// Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or from the file
// of AWS_SHARED_CREDENTIALS_FILE, by default ~/.aws/credentials. They travel unencrypted to this machine only.
type Object string

const s3Scheme = "s3://"

// IsStore reports whether a path is meant as the URL of an object, or of a prefix of objects.
func IsStore(path string) bool { return strings.HasPrefix(path, s3Scheme) }

// joinObject returns the URL of the object that has a name below a prefix.
func joinObject(prefix, name string) (string, error) {
	u, err := url.Parse(prefix)
	if err != nil {
		return "", errStoreURL
	}
	return u.JoinPath(name).String(), nil
}

// CheckStore returns an error if the URL of a prefix of objects is invalid. It asks no store.
func CheckStore(prefix string) error {
	o, err := joinObject(prefix, "name")
	if err == nil {
		_, err = Object(o).open()
	}
	return err
}

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 30 * time.Second // until the header of an answer
	objectTries   = 3
)

var storeTransport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = dialTimeout, answerTimeout
	t.DisableCompression = true // the library does the same: an object is what was stored
	return t
}()

// String returns the URL without the endpoint, for errors, which more people read than operators.
func (o Object) String() string {
	withoutQuery, _, _ := strings.Cut(string(o), "?")
	return withoutQuery
}

var errStoreURL = errors.New("want s3://BUCKET/PREFIX?endpoint=URL&region=NAME, without credentials")

// objectHandle is an object and the client for its store.
type objectHandle struct {
	minio.Core
	host, bucket, key string
}

func (o Object) open() (h objectHandle, err error) {
	u, err := url.Parse(string(o))
	if err != nil {
		return h, errStoreURL // the parser's error has the text, which may be a secret
	}
	h.bucket, h.key = u.Host, strings.TrimPrefix(u.Path, "/")
	if h.bucket == "" || h.key == "" || u.User != nil {
		return h, errStoreURL
	}
	query := u.Query()
	for name := range query {
		if name != "endpoint" && name != "region" {
			return h, fmt.Errorf("unknown parameter %q; known are endpoint and region", name)
		}
	}
	endpoint, err := url.Parse(cmp.Or(query.Get("endpoint"), "https://s3.amazonaws.com"))
	if err != nil || endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		return h, errors.New("endpoint: want https://HOST, without credentials")
	}
	secure := endpoint.Scheme == "https"
	if endpoint.Host == "" || strings.Trim(endpoint.Path, "/") != "" || !secure && endpoint.Scheme != "http" {
		return h, fmt.Errorf("endpoint %s: want https://HOST", endpoint.Redacted())
	}
	if !secure && !net.ParseIP(endpoint.Hostname()).IsLoopback() {
		return h, fmt.Errorf("endpoint %s: want https; http is for a loopback address only", endpoint.Redacted())
	}
	h.host = endpoint.Host
	client, err := minio.New(endpoint.Host, &minio.Options{Secure: secure, Transport: storeTransport,
		MaxRetries: objectTries, Region: cmp.Or(query.Get("region"), "us-east-1"),
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})})
	h.Core = minio.Core{Client: client}
	return h, err
}

// silentStores holds the stores that did not answer, and until when they are not asked again. A reader that passes a
// thousand contents does not wait for each.
var silentStores sync.Map

const silence = 10 * time.Second

// get asks for the object, or for a range of it.
func (o Object) get(ctx context.Context, options minio.GetObjectOptions) (io.ReadCloser, error) {
	h, err := o.open()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, o, err)
	}
	if until, ok := silentStores.Load(h.host); ok && time.Now().Before(until.(time.Time)) {
		return nil, fmt.Errorf("%w: %s: %w: it did not answer a moment ago", ErrUnreadable, o, ErrUnavailable)
	}
	body, _, _, err := h.GetObject(ctx, h.bucket, h.key, options)
	answer := new(minio.ErrorResponse)
	switch {
	case err == nil:
		silentStores.Delete(h.host)
		return objectReader{body}, nil
	case errors.As(err, answer) && answer.Code == minio.NoSuchKey:
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, o, unnamed{err, h.host})
	case answer.Code == "" && ctx.Err() == nil:
		silentStores.Store(h.host, time.Now().Add(silence))
	}
	return nil, fmt.Errorf("%w: %s: %w: %w", ErrUnreadable, o, ErrUnavailable, unnamed{err, h.host})
}

// unnamed is an error of a request that does not name the endpoint.
type unnamed struct {
	error
	host string
}

func (e unnamed) Error() string { return strings.ReplaceAll(e.error.Error(), e.host, "the endpoint") }
func (e unnamed) Unwrap() error { return e.error }

// objectReader returns errors that say that the object cannot be read.
type objectReader struct{ io.ReadCloser }

func (r objectReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w: %w", ErrUnreadable, ErrUnavailable, err) // the connection broke
	}
	return n, err
}

// Open reads the object. Each of its errors, and of reading what it returns, is an ErrUnreadable.
func (o Object) Open(ctx context.Context) (io.ReadCloser, error) {
	return o.get(ctx, minio.GetObjectOptions{})
}

// ReadEnd returns the end of the object, at most n bytes.
func (o Object) ReadEnd(ctx context.Context, n int) ([]byte, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(0, -int64(n)); err != nil || n == 0 {
		return nil, err
	}
	r, err := o.get(ctx, options)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Holds reports whether the object has the content with a SHA-256.
func (o Object) Holds(ctx context.Context, want []byte) bool { return o.verify(ctx, want) == nil }

func (o Object) verify(ctx context.Context, want []byte) error {
	r, err := o.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return fmt.Errorf("%s: the store returns another content than it was sent", o)
	}
	return nil
}

// Write stores a content of a known size, which is not 0, as the object. It returns without an error only after the
// object was read back and matched its hash. want is the SHA-256 of the content.
func (o Object) Write(ctx context.Context, content io.Reader, size int64, want []byte) error {
	h, err := o.open()
	if err != nil {
		return err
	}
	sum := sha256.New()
	options := minio.PutObjectOptions{DisableMultipart: true} // nothing is left of a request that fails
	_, err = h.Client.PutObject(ctx, h.bucket, h.key, io.TeeReader(content, sum), size, options)
	if err != nil {
		return unnamed{err, h.host}
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.Join(ErrMismatch, o.Remove(ctx))
	}
	if err := o.verify(ctx, want); err != nil {
		return fmt.Errorf("read it back: %w", err)
	}
	return nil
}

// Remove removes the object. It is no error if there is none.
func (o Object) Remove(ctx context.Context) error {
	h, err := o.open()
	if err != nil {
		return err
	}
	if err := h.RemoveObject(ctx, h.bucket, h.key, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("remove %s: %w", o, unnamed{err, h.host})
	}
	return nil
}

// Forget forgets which stores did not answer, so that the next reader asks them.
func Forget() { silentStores.Clear() }
