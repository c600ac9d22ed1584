package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestDrain(t *testing.T) {
	t.Parallel() // it mostly waits
	half, rest := make(chan struct{}), make(chan struct{})
	const delay = time.Second
	hs := serve(t, Limits{}, Drain{Delay: delay, Timeout: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("slow") == "" {
			stays(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"one\":1}\n{\"two\"")
		_ = http.NewResponseController(w).Flush()
		close(half)
		<-rest
		_, _ = io.WriteString(w, ":2}\n{\"three\":3}\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ready := func() int {
		w := httptest.NewRecorder()
		hs.bridge.Admin(listenerCheck(addr(hs.addr))).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code
	}
	quiet, _ := hs.get("alice", watchPath)
	open, _ := hs.get("alice", watchPath+"&slow=1")
	_, exec := hs.get("alice", execPath, upgrade...)
	logs, logsConn := hs.get("alice", logPath)
	<-half
	waittest.Until(t, "it is ready", func() bool { return ready() == 200 })

	stopped := time.Now()
	hs.stop()
	waittest.Until(t, "readiness falls", func() bool { return ready() == 503 })
	if c, err := net.Dial("tcp", hs.addr); err == nil {
		_ = c.Close()
	} else if time.Since(stopped) < delay {
		t.Errorf("calls are refused before anybody could notice: %v", err)
	}
	if got, err := io.ReadAll(quiet.Body); err != nil || string(got) != "{}\n" {
		t.Errorf("a silent watch: %q, %v", got, err)
	}
	close(rest)
	// The started event is completed. If the drain is a little late, one more follows.
	if got, err := io.ReadAll(open.Body); err != nil ||
		!strings.HasPrefix("{\"one\":1}\n{\"two\":2}\n{\"three\":3}\n", string(got)) ||
		!strings.HasSuffix(string(got), "}\n") || len(got) < 20 {
		t.Errorf("a watch in the middle of an event: %q, %v", got, err)
	}
	if c, err := net.Dial("tcp", hs.addr); err == nil {
		_ = c.Close()
		t.Error("the listener is open while watches end")
	}
	echo(t, exec)
	line := make([]byte, 3)
	if _, err := io.ReadFull(logs.Body, line); err != nil || string(line) != "{}\n" {
		t.Errorf("a log: %q, %v", line, err)
	}
	if hs.bridge.streams.Len() != 2 {
		t.Errorf("%d streams are open", hs.bridge.streams.Len())
	}
	_ = exec.Close()
	_ = logsConn.Close()
	// The cleanup of serve fails if it does not end with them.
}

// TestDrainCutsWhatIsLeft: sessions that exceed the deadline are closed, and a cut response does not look complete.
func TestDrainCutsWhatIsLeft(t *testing.T) {
	t.Parallel()                                                     // it mostly waits
	hs := serve(t, Limits{}, Drain{Timeout: 8 * time.Second}, stays) // two of them are for close messages
	_, exec := hs.get("alice", execPath, upgrade...)
	logs, _ := hs.get("alice", logPath)
	line := make([]byte, 3)
	if _, err := io.ReadFull(logs.Body, line); err != nil {
		t.Fatal(err)
	}
	hs.stop()
	if got, err := io.ReadAll(logs.Body); !errors.Is(err, io.ErrUnexpectedEOF) || len(got) > 0 {
		t.Errorf("a log: %q, %v", got, err)
	}
	if _, err := io.ReadAll(exec); err != nil {
		t.Errorf("exec: %v", err)
	}
}

func TestDrainEndsEarly(t *testing.T) {
	hs := serve(t, Limits{}, Drain{Timeout: time.Hour}, stays)
	_, exec := hs.get("alice", execPath, upgrade...)
	hs.stop()
	echo(t, exec)
	_ = exec.Close()
	// The cleanup of serve fails if it does not end.
}

// TestHealth: a bridge that was ready stays healthy while a shared store is down, but not otherwise.
func TestHealth(t *testing.T) {
	hs := serve(t, Limits{}, Drain{}, stays)
	store := &moody{Store: hs.Secrets}
	ask := func(admin http.Handler, path string) (int, string) {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	checks := append(storeChecks(store, hs.Objects), listenerCheck(addr(hs.addr)))
	store.down.Store(true)
	admin := hs.bridge.Admin(checks...)
	if code, text := ask(admin, "/healthz"); code != 503 || !strings.Contains(text, "[-]secrets failed") {
		t.Errorf("never ready: %d %s", code, text)
	}
	store.down.Store(false)
	waittest.Until(t, "it is ready", func() bool { code, _ := ask(admin, "/healthz"); return code == 200 })
	store.down.Store(true)
	waittest.Until(t, "it is not ready", func() bool { code, _ := ask(admin, "/readyz"); return code == 503 })
	if code, text := ask(admin, "/healthz"); code != 200 || !strings.Contains(text, "[+]listener ok") {
		t.Errorf("ready before: %d %s", code, text)
	}
	hs.stop()
	waittest.Until(t, "a bridge that drains gets no calls", func() bool {
		code, _ := ask(admin, "/healthz")
		return code == 503
	})
}

func TestReadinessReallyChecks(t *testing.T) {
	hs := serve(t, Limits{}, Drain{}, stays)
	get := func(checks ...Check) (int, string) {
		w := httptest.NewRecorder()
		hs.bridge.Admin(checks...).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code, w.Body.String()
	}
	good := append(storeChecks(hs.Secrets, hs.Objects), listenerCheck(addr(hs.addr)))
	if code, text := get(good...); code != 200 || !strings.Contains(text, "[+]secrets ok\n[+]listener ok\n") {
		t.Errorf("%d %s", code, text)
	}
	refusing := addr(strings.TrimPrefix(clustertest.RefusingURL(t), "https://"))
	if code, text := get(listenerCheck(refusing)); code != 503 || !strings.Contains(text, "[-]listener failed") {
		t.Errorf("%d %s", code, text)
	}
	for name, check := range map[string]Check{
		"objects": storeChecks(hs.Secrets, downObjects{hs.Objects})[0],
		"secrets": storeChecks(downSecrets{hs.Secrets}, hs.Objects)[1],
	} {
		if code, text := get(check); code != 503 || !strings.Contains(text, "[-]"+name+" failed") {
			t.Errorf("%s is down: %d %s", name, code, text)
		}
	}
	w := httptest.NewRecorder()
	hs.bridge.Admin(listenerCheck(refusing)).ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
	if w.Code != 200 {
		t.Errorf("a bridge that is not ready lives: %d", w.Code)
	}
	w = httptest.NewRecorder()
	hs.bridge.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "go_goroutines") {
		t.Errorf("metrics: %d", w.Code)
	}
}

type downObjects struct{ objects.Store }

func (downObjects) Revision(context.Context) (uint64, error) { return 0, objects.ErrUnavailable }

type downSecrets struct{ secrets.Store }

func (downSecrets) Get(context.Context, string) (*secrets.Secret, error) {
	return nil, secrets.ErrUnavailable
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func echo(t *testing.T, conn *tls.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}
