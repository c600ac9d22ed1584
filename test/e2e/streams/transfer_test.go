package streams_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/test/e2e"
)

const transferSize = 32 << 20

// TestTransfersAreExact: large transfers must not lose bytes. The table covers each pair of cluster, kubectl and
// dialect.
func TestTransfersAreExact(t *testing.T) {
	dir := t.TempDir()
	data := make([]byte, transferSize)
	_, _ = rand.Read(data)
	want := sha256.Sum256(data)
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	port := e2e.EchoServer(t)
	bins := e2e.Kubectls()
	for _, tt := range []struct {
		cluster, version string
		dialect          e2e.Dialect
	}{
		{"member1", "newest", e2e.Dialects[0]},
		{"member1", "PATH", e2e.Dialects[1]},
		{"member2", "newest", e2e.Dialects[1]},
		{"member2", "PATH", e2e.Dialects[0]},
	} {
		ns := e2e.StreamPods(t, []string{tt.cluster}, "shell")
		bin := bins[tt.version]
		if bin == "" {
			bin = bins["PATH"] // the machine has only one kubectl
		}
		g := e2e.Through(t, tt.cluster)
		g.Env = tt.dialect.Env
		name := strings.Join([]string{tt.cluster, tt.version, tt.dialect.Name}, "/")
		t.Run(name+"/exec", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			transfer(t, func() (stderr string, err error) {
				cmd := g.Command(ctx, t, bin, "-n", ns, "exec", "-i", "shell", "--", "cat")
				var errOut bytes.Buffer
				sum := newChecksum()
				cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), sum, io.MultiWriter(&errOut, e2e.Printed)
				if err = cmd.Run(); err == nil && !sum.equals(want) {
					err = fmt.Errorf("%d other bytes came back", sum.n)
				}
				return errOut.String(), err
			})
		})
		t.Run(name+"/cp", func(t *testing.T) {
			back := filepath.Join(t.TempDir(), "back")
			for _, args := range [][]string{
				{"-n", ns, "cp", source, "shell:copied"},
				{"-n", ns, "cp", "shell:copied", back},
			} {
				transfer(t, func() (stderr string, err error) {
					r := g.RunWith(t, bin, nil, args...)
					if r.Code != 0 {
						err = errors.New(r.String())
					}
					return r.Stderr, err
				})
			}
			if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
		t.Run(name+"/port-forward", func(t *testing.T) {
			_, addr := e2e.PortForward(t, g, bin, ns, port)
			forwardTwice(t, addr, data, want)
		})
	}
}

// forwardTwice sends data through a forwarded port by two connections at the same time.
func forwardTwice(t *testing.T, addr string, data []byte, want [sha256.Size]byte) {
	t.Helper()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
			go func() {
				_, _ = conn.Write(data)
				_ = conn.(*net.TCPConn).CloseWrite()
			}()
			sum := newChecksum()
			if _, err := io.Copy(sum, conn); err != nil || !sum.equals(want) {
				t.Errorf("%d bytes came back, %v", sum.n, err)
			}
		})
	}
	wg.Wait()
}

// kubectlPing is the time between two pings of kubectl.
const kubectlPing = 5 * time.Second

// transfer runs a transfer, again if a ping may have cut it off. kube-apiserver closes its socket while output is
// unsent, and a ping that arrives then resets the connection, also without the gateway.
func transfer(t *testing.T, run func() (stderr string, err error)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		start := time.Now()
		stderr, err := run()
		if err == nil {
			return
		}
		text := fmt.Sprintf("attempt %d, %s: %v\n%s", attempt, time.Since(start), err, stderr)
		if attempt == 3 || !isCutOff(stderr) || time.Since(start) < kubectlPing {
			t.Fatalf("%s\n--- gateway\n%s", text, e2e.SharedLog())
		}
		t.Log(text)
	}
}

// isCutOff recognizes a broken connection in kubectl's error output. Inside of a message, client-go omits the reason.
func isCutOff(stderr string) bool {
	return strings.Contains(stderr, "websocket: close 1006") || strings.Contains(stderr, "read message: %!w(<nil>)")
}

type checksum struct {
	hash.Hash
	n int
}

func newChecksum() *checksum { return &checksum{Hash: sha256.New()} }

func (s *checksum) Write(p []byte) (int, error) {
	s.n += len(p)
	return s.Hash.Write(p)
}

func (s *checksum) equals(want [32]byte) bool { return [32]byte(s.Sum(nil)) == want }
