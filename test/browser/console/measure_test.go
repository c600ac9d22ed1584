package console

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// createMany creates the ConfigMaps entry-00000 and following in parallel.
func createMany(t *testing.T, client kubernetes.Interface, namespace string, count int) {
	t.Helper()
	names := make(chan string)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for name := range names {
				if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(name, nil),
					metav1.CreateOptions{}); err != nil {
					t.Errorf("create %s: %v", name, err)
				}
			}
		})
	}
	for i := range count {
		names <- entryName(i)
	}
	close(names)
	wg.Wait()
}

func entryName(i int) string { return fmt.Sprintf("entry-%05d", i) }

// leastRows is the default number of rows of TestLargeTableScrolls.
const leastRows = 10_000

// rowsOfTable returns the value of the variable ROWS.
func rowsOfTable(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ROWS")
	if text == "" {
		return leastRows
	}
	rows, err := strconv.Atoi(text)
	if err != nil || rows < leastRows || rows > 200_000 || rows%len(e2e.Members) != 0 {
		t.Fatalf("ROWS is %q; set it to an even number from %d to 200000, the most that the console shows", text, leastRows)
	}
	return rows
}

// logMeasured logs a line of a script that begins with "measured", and fails the test for any other line.
func (s *script) logMeasured(line string) {
	s.t.Helper()
	if measured, ok := strings.CutPrefix(line, "measured "); ok {
		s.t.Log(measured)
	} else {
		s.t.Error(line)
	}
}

// TestLargeTableScrolls fails if the document grows with the table: a browser would then stutter, and in the end stop.
// ROWS is another number of rows.
func TestLargeTableScrolls(t *testing.T) {
	rows := rowsOfTable(t)
	e2e.CreateRegistry(t, "console-scroll", "{}", "{apiVersion: v1, kind: ConfigMap}")
	namespace := e2e.NewNamespace(t, e2e.Members...)
	for _, member := range e2e.Members {
		createMany(t, e2e.DirectClient(t, member), namespace, rows/len(e2e.Members))
	}
	s := startAsOwner(t, "scroll.mjs", "NAMESPACE="+namespace, "COUNT="+strconv.Itoa(rows))
	for line := range s.Lines {
		s.logMeasured(line)
	}
	s.end()
}

const (
	churned     = 500 // ConfigMaps of each cluster while they churn
	churnPeriod = 100 * time.Millisecond
	mostGrowth  = 1.1 // factor from the memory of the first minute to that of the last
)

// churn replaces the oldest of churned ConfigMaps and changes another one in each churnPeriod, until ctx ends. It adds
// its writes to count.
func churn(ctx context.Context, client kubernetes.Interface, namespace string, count *atomic.Int64) error {
	maps := client.CoreV1().ConfigMaps(namespace)
	tick := time.NewTicker(churnPeriod)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		background := context.WithoutCancel(ctx) // so that no write has an unknown result
		if err := maps.Delete(background, entryName(i), metav1.DeleteOptions{}); err != nil {
			return err
		}
		if _, err := maps.Create(background, configMap(entryName(i+churned), nil), metav1.CreateOptions{}); err != nil {
			return err
		}
		changed := configMap(entryName(i+churned/2), map[string]string{"at": strconv.Itoa(i)})
		if _, err := maps.Update(background, changed, metav1.UpdateOptions{}); err != nil {
			return err
		}
		count.Add(3)
	}
}

// TestWatchKeepsMemory fails if the memory of the page grows while the table follows a watch. A page that is open for a
// day would then stop. The test runs for WATCH=1h, and only if that is set. It logs the memory after each minute.
func TestWatchKeepsMemory(t *testing.T) {
	text := os.Getenv("WATCH")
	if text == "" {
		t.Skip("slow: make measure-console runs it")
	}
	duration, err := time.ParseDuration(text)
	if err != nil || duration < 2*time.Minute {
		t.Fatalf("WATCH is %q; set it to a duration of at least 2m, such as 1h", text)
	}
	e2e.CreateRegistry(t, "console-memory", "{}", "{apiVersion: v1, kind: ConfigMap}")
	namespace := e2e.NewNamespace(t, e2e.Members...)
	var writes atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, member := range e2e.Members {
		client := e2e.DirectClient(t, member)
		createMany(t, client, namespace, churned)
		wg.Go(func() {
			if err := churn(ctx, client, namespace, &writes); err != nil {
				t.Errorf("churn in %s: %v", member, err)
			}
		})
	}

	s := startLong(t, duration+e2e.SessionLimit, "memory.mjs", e2e.Shared(t).Kubeconfig, "NAMESPACE="+namespace)
	s.step("wait")
	// A row of a watch needs other memory than a row of a list, so the test begins once all rows come from the watch.
	listed := writes.Load()
	waittest.Until(t, "all rows come from the watch", func() bool {
		return writes.Load()-listed > 3*churned*int64(len(e2e.Members))
	})
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	var heap []float64
	for range int(duration / time.Minute) {
		<-minute.C
		before := writes.Load()
		s.next("measure")
		line := s.Line("measured ")
		t.Logf("%d writes: %s", before, line)
		heap = append(heap, heapOf(t, line))
		s.step("wait")
	}
	stop()
	wg.Wait()
	s.next(fmt.Sprint("end ", churned*len(e2e.Members)))
	s.end()
	if first, last := heap[0], heap[len(heap)-1]; last > first*mostGrowth {
		t.Errorf("the page uses %.1f MB after the first minute and %.1f MB in the end, want at most %.0f %%", first, last,
			100*mostGrowth)
	}
}

// heapOf reads the number of megabytes in a line such as: measured heap 12.3 MB, 900 nodes.
func heapOf(t *testing.T, line string) float64 {
	t.Helper()
	var megabytes float64
	if _, err := fmt.Sscanf(line, "measured heap %f MB", &megabytes); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return megabytes
}
