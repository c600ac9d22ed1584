package agentserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

type echo struct {
	t    *testing.T
	in   *io.PipeWriter
	out  io.ReadCloser
	sent int
}

func (w *world) echo(c *http.Client) (*echo, error) {
	r, in := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.api.URL+"/echo", r)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	w.t.Cleanup(func() { _, _ = in.Close(), resp.Body.Close() })
	return &echo{t: w.t, in: in, out: resp.Body}, nil
}

func (e *echo) send() error {
	e.sent++
	want := fmt.Sprintf("line %d\n", e.sent)
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(e.in, want); sent <- err }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(e.out, got); err != nil {
		_ = e.in.CloseWithError(err)
		<-sent
		return err
	}
	if string(got) != want {
		return fmt.Errorf("%q came back for %q", got, want)
	}
	return <-sent
}

// ended waits for the end of a silent stream and returns its error.
func (e *echo) ended() error {
	got := make(chan error, 1)
	go func() { _, err := io.ReadFull(e.out, make([]byte, 1)); got <- err }()
	select {
	case err := <-got:
		return err
	case <-time.After(waittest.Patience):
		e.t.Fatal("a stream goes on that was cut")
		return nil
	}
}
