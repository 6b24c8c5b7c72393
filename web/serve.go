package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve answers the requests of a listener until ctx ends. Requests that take longer have deadlines of their own.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of the requests: streams end with it
	defer cancel()
	server := &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		cancel()
		bounded, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		server.Shutdown(bounded)
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http: %w", err)
	}
	return ctx.Err()
}
