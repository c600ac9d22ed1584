package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

const (
	readers = 4
	writers = 2
	// pause is between two requests of one reader or writer.
	pause = 10 * time.Millisecond
	// retryPause is longer than a Service needs to notice the end of a pod.
	retryPause = time.Second
)

// load reads and writes ConfigMaps of a member through the gateway, and watches them, until stop.
type load struct {
	client *http.Client
	url    string // URL of the ConfigMaps

	reads, retries, broken atomic.Int64
	acknowledged           []string // names; guarded by mu
	watched                map[string]int
	failed                 []error
	mu                     sync.Mutex
	callers, watches       sync.WaitGroup
	endCalls, endWatch     context.CancelFunc
}

const workNamespace = "work"

// startLoad begins with one ConfigMap, read-me. config is that of the member at the gateway.
func startLoad(t *testing.T, config *rest.Config) *load {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = time.Minute
	watching, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, endCalls := context.WithCancel(t.Context())
	watchCtx, endWatch := context.WithCancel(t.Context())
	l := &load{
		client: client, endCalls: endCalls, endWatch: endWatch, watched: map[string]int{},
		url: config.Host + "/api/v1/namespaces/" + workNamespace + "/configmaps",
	}
	if _, err := watching.CoreV1().ConfigMaps(workNamespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "read-me"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.startWatch(watchCtx, t, watching)
	for range readers {
		l.callers.Go(func() { l.read(ctx) })
	}
	for i := range writers {
		l.callers.Go(func() { l.write(ctx, i) })
	}
	return l
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// waitBetween reports whether the load goes on.
func waitBetween(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// read repeats a request once if its connection breaks.
func (l *load) read(ctx context.Context) {
	for waitBetween(ctx, pause) {
		code, err := l.send(ctx, http.MethodGet, l.url+"/read-me", nil)
		if err != nil && waitBetween(ctx, retryPause) {
			l.retries.Add(1)
			code, err = l.send(ctx, http.MethodGet, l.url+"/read-me", nil)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.fail(fmt.Errorf("a read failed twice: %w", err))
		case code != http.StatusOK:
			l.fail(fmt.Errorf("a read returned %d", code))
		}
		l.reads.Add(1)
	}
}

// write creates one object after the other. An interrupted creation may have happened or not.
func (l *load) write(ctx context.Context, writer int) {
	for n := 0; waitBetween(ctx, pause); n++ {
		name := fmt.Sprintf("written-%d-%d", writer, n)
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
		code, err := l.send(context.WithoutCancel(ctx), http.MethodPost, l.url, []byte(body))
		switch {
		case err != nil:
			l.broken.Add(1)
		case code == http.StatusCreated:
			l.mu.Lock()
			l.acknowledged = append(l.acknowledged, name)
			l.mu.Unlock()
		default:
			l.fail(fmt.Errorf("a write returned %d", code))
		}
	}
}

func (l *load) send(ctx context.Context, method, url string, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// startWatch counts the events of each object. The watch resumes at the last resourceVersion, as client-go's do.
func (l *load) startWatch(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps(workNamespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, watcher{
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(ctx, o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.watches.Go(func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if object, ok := event.Object.(*corev1.ConfigMap); ok && event.Type == watch.Added {
				l.mu.Lock()
				l.watched[object.Name]++
				l.mu.Unlock()
			} else if event.Type == watch.Error {
				l.fail(fmt.Errorf("the watch ended: %v", event.Object))
			}
		}
	})
}

type watcher struct {
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (w watcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return w.watch(ctx, o)
}

// isWatched reports whether the watch has had all acknowledged writes.
func (l *load) isWatched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.acknowledged {
		if l.watched[name] == 0 {
			return false
		}
	}
	return true
}

// stop ends the load, and checks it. existing returns the names of the objects that the member itself has.
func (l *load) stop(t *testing.T, existing func() map[string]bool) {
	t.Helper()
	l.endCalls()
	l.callers.Wait()
	exists := existing()
	waittest.Until(t, "the watch has had all acknowledged writes", l.isWatched)
	l.endWatch()
	l.watches.Wait()
	l.client.CloseIdleConnections()
	t.Logf("%d reads, %d of them repeated once after a broken connection; %d acknowledged writes, and %d whose "+
		"connection broke", l.reads.Load(), l.retries.Load(), len(l.acknowledged), l.broken.Load())
	if l.reads.Load() == 0 || len(l.acknowledged) == 0 {
		t.Error("there was no load")
	}
	for _, err := range l.failed {
		t.Error(err)
	}
	for _, name := range l.acknowledged {
		if !exists[name] {
			t.Errorf("the acknowledged write of %s is lost", name)
		}
	}
	for name, n := range l.watched {
		if n != 1 && strings.HasPrefix(name, "written-") {
			t.Errorf("the watch had the creation of %s %d times", name, n)
		}
	}
}
