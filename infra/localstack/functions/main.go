// Command functions offers the functions of an emulator of AWS by https, while another program runs. kubectl sends no
// credential to an http URL.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/clusterpass/clusterpass/shared/pki"
)

const usage = "usage: functions LISTEN URL DATA COMMAND [ARG...]"

const (
	headerTimeout = 10 * time.Second
	// callTimeout exceeds the 29 seconds of a function, and a cold start in a container.
	callTimeout = 2 * time.Minute
	stopTimeout = time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run serves https on args[0] for the URL args[1], with a certificate of the server CA in the data directory args[2].
// It runs the command in the other args, and returns when the command has ended. When ctx ends, the command gets
// SIGTERM.
func run(ctx context.Context, args []string) error {
	if len(args) < 4 {
		return errors.New(usage)
	}
	target, err := url.Parse(args[1])
	if err != nil || target.Host == "" {
		return fmt.Errorf("the URL %q has no host; want the one of the emulator's API", args[1])
	}
	cert, err := certificate(args[2])
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", args[0])
	if err != nil {
		return fmt.Errorf("listen for https: %w; choose another address", err)
	}
	return serve(ctx, ln, target, cert, args[3:])
}

// serve closes ln.
func serve(ctx context.Context, ln net.Listener, target *url.URL, cert *tls.Certificate, command []string) error {
	transport := &http.Transport{DisableCompression: true, ResponseHeaderTimeout: callTimeout}
	srv := &http.Server{
		Handler:           &httputil.ReverseProxy{Transport: transport, Rewrite: rewrite(target)},
		ReadHeaderTimeout: headerTimeout, ReadTimeout: callTimeout, WriteTimeout: callTimeout,
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug), // mostly TLS handshakes
	}
	running, cancel := context.WithCancel(ctx) // the command is useless without the server
	defer cancel()
	served := make(chan error, 1)
	secure := tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
	go func() {
		served <- srv.Serve(secure)
		cancel()
	}()
	cmd := exec.CommandContext(running, command[0], command[1:]...) //nolint:gosec // the caller's own command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	err := cmd.Run()
	if ctx.Err() != nil && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 0 {
		err = nil
	}
	closed := srv.Close()
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = fmt.Errorf("serve https: %w", failed)
	}
	transport.CloseIdleConnections()
	return errors.Join(err, closed)
}

func certificate(data string) (*tls.Certificate, error) {
	dir := filepath.Join(data, "pki")
	ca, err := pki.LoadCA(dir, "server-ca")
	if err != nil {
		return nil, err
	}
	return ca.Server(dir, "functions", []string{"localhost", "127.0.0.1", "::1"})
}

// rewrite sends a request to the same path below target. The emulator selects the API by the path, not by the host.
func rewrite(target *url.URL) func(*httputil.ProxyRequest) {
	return func(r *httputil.ProxyRequest) { r.SetURL(target) }
}
