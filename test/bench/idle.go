package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	clusters "github.com/clusterpass/clusterpass/test/cluster"
)

// The number of open streams, and the duration of each measurement.
const (
	idleWatches = 5000 // opened twice
	idleExecs   = 1000
	idleTime    = 10 * time.Second
	openers     = 8
)

// ofGateway is the name of the gateway in tables.
const ofGateway = "gateway"

// idle measures the memory and CPU of idle streams in the gateway, in a bare httputil.ReverseProxy, and in a server
// that keeps the streams itself. Each runs in its own process, as does the member, so that no process has more than
// 20,000 connections.
func idle(ctx context.Context, out *report, _ *clusters.Set, dir string) error {
	process, member, err := startPlainWatches(ctx)
	if err != nil {
		return err
	}
	defer interrupt(process)
	data := filepath.Join(dir, "idle")
	ca, err := certificateOf(ctx, member.Host)
	if err != nil {
		return err
	}
	if err := registerStandIns(ctx, data, ca, "idle", member.Host); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nidle streams\tthrough\tRSS MiB\tKiB a stream\tCPU % of a core\t")
	for _, h := range []struct {
		name, path string
		execs      int
		start      func(context.Context) (*exec.Cmd, *rest.Config, error)
	}{
		{"net/http with TLS alone", "", idleExecs, startPlainWatches},
		{"ReverseProxy", "", 0, func(ctx context.Context) (*exec.Cmd, *rest.Config, error) {
			return startReverseProxy(ctx, member.Host, "h2") // by which it cannot switch protocols
		}},
		{ofGateway, "/clusters/idle", idleExecs, func(ctx context.Context) (*exec.Cmd, *rest.Config, error) {
			return startProcess(ctx, data)
		}},
		{"gateway, checks every 10 s", "/clusters/idle", 0, func(ctx context.Context) (*exec.Cmd, *rest.Config, error) {
			return startProcess(ctx, data, "--recheck=10s")
		}},
	} {
		process, cfg, err := h.start(ctx)
		if err != nil {
			return err
		}
		err = measureIdle(ctx, out, tw, h.name, process.Process.Pid, cfg, h.path, h.execs)
		interrupt(process)
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	return tw.Flush()
}

// measureIdle opens streams through a process and prints its memory and CPU. prefix begins the stand-in's paths there.
func measureIdle(
	ctx context.Context, goals *report, tw io.Writer, name string, pid int, cfg *rest.Config, prefix string, execs int,
) error {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return err
	}
	c := &caller{addr: u.Host, tls: tlsConfig, prefix: prefix}
	defer c.close()
	before, err := rss(pid)
	if err != nil {
		return err
	}
	for i, step := range []struct {
		name string
		n    int
		open func(context.Context) error
	}{
		{"nothing", 0, nil},
		{fmt.Sprint(idleWatches, " watches"), idleWatches, c.watch},
		{fmt.Sprint("and ", idleWatches, " watches"), idleWatches, c.watch},
		{fmt.Sprint("and ", execs, " execs"), execs, c.exec},
	} {
		if step.n == 0 && step.open != nil {
			continue
		}
		if err := inParallel(ctx, step.n, step.open); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		cpu, err := cpuOver(ctx, pid, idleTime)
		if err != nil {
			return err
		}
		after, err := rss(pid)
		if err != nil {
			return err
		}
		each := "-"
		if step.n > 0 {
			each = strconv.Itoa((after - before) / step.n)
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%.1f\t\n", step.name, name, after/1024, each, 100*cpu)
		switch {
		case name != ofGateway:
		case i == 1:
			goals.atMost(fmt.Sprintf("%d idle watches, each", idleWatches), float64(after-before)/idleWatches, 64, " KiB")
		case i == 2:
			goals.atMost(fmt.Sprintf("%d idle watches, in all", 2*idleWatches), float64(after)/1024, 768, " MiB")
		}
		before = after
	}
	return nil
}

// certificateOf returns the certificate of a TLS server in PEM.
func certificateOf(ctx context.Context, server string) ([]byte, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	insecure := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	conn, err := (&tls.Dialer{Config: insecure}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), nil
}

// standIn starts a server that keeps watches and execs open.
func standIn() *httptest.Server {
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}\n")
			if !route.Truthy(r.URL.RawQuery, "watch") { // a probe, which fails unless it ends
				return
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _, _ = conn.NextReader()
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	return srv
}

// registerStandIns registers clusters. namesAndURLs alternates their names and URLs.
func registerStandIns(ctx context.Context, data string, ca []byte, namesAndURLs ...string) error {
	st, err := stores.Open(ctx, stores.Address{Kind: "dir", Where: data})
	if err != nil {
		return err
	}
	reg := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects,
		Policy: cluster.DialPolicy{AllowLoopback: true}}
	for pair := range slices.Chunk(namesAndURLs, 2) {
		_, err = reg.Register(ctx, registration.Request{Name: pair[0], Identity: "impersonate", SkipCheck: true,
			Kubeconfig: secrets.NewValue(fmt.Appendf(nil,
				`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}], users: [{name: u, user: {token: any}}]}`,
				pair[1], base64.StdEncoding.EncodeToString(ca)))})
		if err != nil {
			return err
		}
	}
	return nil
}

// startProcess runs the gateway in its own process, so that its memory can be measured. The flags are added to those
// that it sets.
func startProcess(ctx context.Context, data string, flags ...string) (*exec.Cmd, *rest.Config, error) {
	return startProcessIn(ctx, nil, data, flags...)
}

// startProcessIn is startProcess with variables in the environment.
func startProcessIn(ctx context.Context, env []string, data string, flags ...string) (*exec.Cmd, *rest.Config, error) {
	program, args, err := gatewayProgram()
	if err != nil {
		return nil, nil, err
	}
	pass := filepath.Join(data, "pass")
	args = append(args,
		"--listen=127.0.0.1:0", "--data="+data, "--functions=inline", "--kubeconfig="+pass, "--log-level=ERROR",
		"--max-streams=100000", "--max-streams-per-caller=100000", "--drain-timeout=1s",
	)
	cmd := exec.CommandContext(ctx, program, append(args, flags...)...)
	cmd.Env = append([]string{
		"HOME=" + data, "PATH=" + os.Getenv("PATH"), profilesVariable + "=" + os.Getenv(profilesVariable),
	}, env...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	r := bufio.NewReader(stdout)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("the gateway ended: %w", err), cmd.Wait())
		}
		if strings.Contains(line, "ctrl-C ends") {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	cfg, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		return nil, nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return cmd, cfg, nil
}

// caller opens streams and keeps them open until close.
type caller struct {
	addr   string
	tls    *tls.Config
	prefix string

	mu    sync.Mutex
	conns []net.Conn
}

func (c *caller) open(ctx context.Context, request string, want int) error {
	conn, err := (&tls.Dialer{Config: c.tls}).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	//nolint:bodyclose // the body is the connection, which stays open
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1024), nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("answer %s", resp.Status)
	}
	return conn.SetDeadline(time.Time{})
}

func (c *caller) watch(ctx context.Context) error {
	return c.open(ctx, "GET "+c.prefix+"/api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusOK)
}

func (c *caller) exec(ctx context.Context) error {
	return c.open(ctx, "GET "+c.prefix+
		"/api/v1/namespaces/a/pods/p/exec?command=sh&stdout=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+
		"AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		http.StatusSwitchingProtocols)
}

func (c *caller) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func inParallel(ctx context.Context, n int, do func(context.Context) error) error {
	todo := make(chan struct{}, n)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	var (
		wg   sync.WaitGroup
		errs = make([]error, openers)
	)
	for i := range openers {
		wg.Go(func() {
			for range todo {
				if errs[i] = do(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
