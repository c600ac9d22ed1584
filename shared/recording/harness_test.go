package recording_test

import (
	"errors"
	"io"
	"testing"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) recording.Store { return &storetest.Memory{} })
}

func newInfo() recording.Info {
	return recording.Info{
		User: "ann", Groups: []string{"dev"}, Pass: "uid", RequestID: "request", Cluster: "prod", Namespace: "web",
		Pod: "web-0", Container: "app", Kind: recording.Exec, Command: []string{"sh", "-c", "ls"}, TTY: true, HasInput: true,
	}
}

func begin(tb testing.TB, store recording.Store, i recording.Info) (*recording.Session, recording.Keys) {
	tb.Helper()
	signer, keys := storetest.NewSigner(tb)
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(tb.Context(), i)
	if err != nil {
		tb.Fatal(err)
	}
	return s, keys
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// readAll returns all events, and the error after them unless it is io.EOF.
func readAll(tb testing.TB, r *recording.Reader) ([]recording.Event, error) {
	tb.Helper()
	var events []recording.Event
	for {
		e, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}
