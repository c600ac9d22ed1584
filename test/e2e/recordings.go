package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/dirstore"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// completeRecordings caches the recordings that have an end, by ID. They do not change any more.
var completeRecordings sync.Map

// Recording is the verified content of a recording of the shared gateway.
type Recording struct {
	recording.Info
	Events   map[recording.Type]string // the joined data of each type
	HasNoEnd bool                      // the session still runs, or the recording was cut
}

// RecordingsDir returns the directory with the recordings of the shared gateway.
func RecordingsDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(Shared(t).Dir, "data", "recordings")
}

// RecordNamespace creates a RecordingPolicy for a namespace until the test ends. It returns when the gateway uses it.
// probe opens a session in the namespace.
func RecordNamespace(t *testing.T, namespace, level string, recordInput bool, probe func()) {
	t.Helper()
	name := UniqueName(t)
	OwnAPI(t).Apply(t, fmt.Sprintf("{apiVersion: clusterpass.io/v1alpha1, kind: RecordingPolicy, metadata: {name: %s}, "+
		"spec: {namespaces: [%s], level: %s, recordInput: %v}}", name, namespace, level, recordInput))
	t.Cleanup(func() { OwnAPI(t).Run(t, "delete", "recordingpolicy", name) })
	waittest.Until(t, "sessions in "+namespace+" are recorded", func() bool {
		probe()
		return len(RecordingsOf(t, namespace)) > 0
	})
}

// RecordingsOf returns the recordings of the sessions in a namespace.
func RecordingsOf(t *testing.T, namespace string) []Recording {
	t.Helper()
	dir, err := dirstore.OpenExisting(RecordingsDir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Join(Shared(t).Dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	public, err := keys.Published(t.Context(), st.Objects)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := dir.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var all []Recording
	for _, id := range ids {
		if known, ok := completeRecordings.Load(id); ok {
			if r := known.(Recording); r.Namespace == namespace {
				all = append(all, r)
			}
			continue
		}
		r, err := recording.Open(t.Context(), dir, id, recording.NewKeys(public...))
		if errors.Is(err, recording.ErrNotFound) {
			continue // its first part is being written
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Info().Namespace == namespace {
			one := readRecording(t.Context(), t, r)
			if !one.HasNoEnd {
				completeRecordings.Store(id, one)
			}
			all = append(all, one)
		}
	}
	return all
}

func readRecording(ctx context.Context, t *testing.T, r *recording.Reader) Recording {
	t.Helper()
	one := Recording{Info: *r.Info(), Events: map[recording.Type]string{}}
	data := map[recording.Type]*bytes.Buffer{}
	defer func() {
		for of, text := range data {
			one.Events[of] = text.String()
		}
	}()
	for {
		e, err := r.Next(ctx)
		var fault *recording.Fault
		switch {
		case errors.Is(err, io.EOF):
			return one
		case errors.As(err, &fault) && fault.Kind == recording.Cut:
			one.HasNoEnd = true
			return one
		case err != nil:
			t.Fatal(err)
		}
		text := data[e.Type]
		if text == nil {
			text = &bytes.Buffer{}
			data[e.Type] = text
		}
		text.Write(e.Data)
		switch e.Type {
		case recording.Resize:
			_, _ = fmt.Fprintf(text, "%dx%d ", e.Width, e.Height)
		case recording.Transferred:
			text.Reset() // the last one counts all bytes
			_, _ = fmt.Fprintf(text, "in=%d out=%d", e.In, e.Out)
		}
	}
}

// LaterRecordings returns a function that reports whether a session in a namespace began after this call.
func LaterRecordings(t *testing.T, namespace string) (isLater func(Recording) bool) {
	t.Helper()
	earlier := map[string]bool{}
	for _, r := range RecordingsOf(t, namespace) {
		earlier[r.ID] = true
	}
	return func(r Recording) bool { return !earlier[r.ID] }
}

// WaitForRecording returns the complete recording of a session in a namespace for which isWanted returns true.
func WaitForRecording(t *testing.T, namespace, description string, isWanted func(Recording) bool) Recording {
	t.Helper()
	var found Recording
	waittest.Until(t, "the recording of "+description, func() bool {
		for _, r := range RecordingsOf(t, namespace) {
			if !r.HasNoEnd && isWanted(r) {
				found = r
				return true
			}
		}
		return false
	})
	return found
}
