package fleet_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// serveWatch returns the handler of a member that serves lists and watches. flush sends its text at once.
func serveWatch(list, watch func(flush func(text string), r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		flush := func(text string) {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
		if r.URL.Query().Get("watch") == "" {
			list(flush, r)
			return
		}
		watch(flush, r)
	}
}

// watchEvent has the fields of an event that these tests check. Code is set if the object is a Status.
type watchEvent struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Code     int
	}
}

// initialEvents is the query of a watch that begins with the existing objects and a bookmark after them.
const initialEvents = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

func nextEvent(t *testing.T, lines *bufio.Reader) (e watchEvent) {
	t.Helper()
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &e)
	}
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	return e
}

// podEvent returns the line of a watch event, as kube-apiserver writes it.
func podEvent(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"x",`+
		`"resourceVersion":%q}}}`+"\n", kind, name, version)
}

// TestFleetWatchCutInAList fails if a watch resumes from half of a new cluster's list, and so misses deletions.
func TestFleetWatchCutInAList(t *testing.T) {
	var up atomic.Bool
	first, rest := make(chan struct{}), make(chan struct{})
	h, _ := newFleet(t, gatewaytest.Options{},
		serveWatch(func(flush func(string), _ *http.Request) {
			select {
			case <-first: // a is at the version of its last event, so that it does not cause the 410 itself
				flush(podList("8"))
			default:
				flush(podList("5"))
			}
		},
			func(flush func(string), r *http.Request) {
				flush("")
				<-first
				flush(podEvent("ADDED", "of-a", "6") + podEvent("BOOKMARK", "", "7") + podEvent("ADDED", "of-a-too", "8"))
				<-r.Context().Done()
			}),
		func(w http.ResponseWriter, r *http.Request) {
			if !up.Load() {
				refuse(503, "ServiceUnavailable", "it starts")(w, r)
				return
			}
			serveWatch(func(flush func(string), _ *http.Request) {
				all := podList("40", "x/one", "x/two")
				half := strings.Index(all, `,{"metadata":{"name":"two"`)
				flush(all[:half])
				<-rest
				flush(all[half:])
			}, func(flush func(string), r *http.Request) {
				flush(podEvent("ADDED", "three", "41"))
				<-r.Context().Done()
			})(w, r)
		})
	l, _ := h.list("/fleet/api/v1/pods", nil)
	up.Store(true)
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion="+l.Metadata.ResourceVersion,
		nil, "")
	lines := bufio.NewReader(resp.Body)
	if e := nextEvent(t, lines); e.Object.Metadata.Name != "one" {
		t.Fatalf("%+v", e)
	}
	close(first)
	for _, name := range []string{"of-a", "of-a-too"} { // without a bookmark between them
		e := nextEvent(t, lines)
		if e.Object.Metadata.Name != name || !cursor.Composite(e.Object.Metadata.ResourceVersion) {
			t.Fatalf("%+v", e)
		}
		again := h.Do("GET", "/fleet/api/v1/pods?watch=1&resourceVersion="+e.Object.Metadata.ResourceVersion, nil, "")
		if again.StatusCode != http.StatusGone {
			t.Errorf("a watch from %s: %d, want 410", e.Object.Metadata.ResourceVersion, again.StatusCode)
		}
	}
	close(rest)
	if e := nextEvent(t, lines); e.Object.Metadata.Name != "two" {
		t.Fatalf("%+v", e)
	}
	e := nextEvent(t, lines)
	if v, err := cursor.ParseVersion(e.Object.Metadata.ResourceVersion); e.Object.Metadata.Name != "three" ||
		err != nil || len(v) != 2 {
		t.Errorf("%+v is of %v, %v", e, v, err)
	}
}

// TestFleetWatchCutInADifference fails if a client that resumes from an event of a difference misses the rest of it.
func TestFleetWatchCutInADifference(t *testing.T) {
	var watches atomic.Int32
	pod := func(name, version string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"x","uid":%q,"resourceVersion":%q}}`, name, name, version)
	}
	list := func(version string, pods ...string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"` + version + `"},"items":[` +
			strings.Join(pods, ",")
	}
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), r *http.Request) {
		switch {
		case watches.Load() < 2: // the list of the client
			flush(podList("5"))
		case r.URL.Query().Get("resourceVersionMatch") == "Exact":
			flush(list("5", pod("aa", "1"), pod("bb", "2"), pod("zz", "3")) + "]}")
		case r.URL.Query().Get("limit") == "1": // the gateway reads the current version
			flush(podList("950"))
		default:
			flush(list("950", pod("aa", "900")))
			<-r.Context().Done()
		}
	}, func(flush func(string), _ *http.Request) {
		if watches.Add(1) == 1 {
			flush("")
			return // the next watch finds the history gone
		}
		flush(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
			`"reason":"Expired","code":410}}` + "\n")
	}), serveWatch(func(flush func(string), _ *http.Request) {
		flush(podList("7"))
	}, func(flush func(string), r *http.Request) {
		flush("")
		<-r.Context().Done()
	}))
	l, _ := h.list("/fleet/api/v1/pods", nil)
	from := l.Metadata.ResourceVersion
	for _, connection := range []string{"first", "resumed"} {
		resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&resourceVersion="+from, nil, "")
		e := nextEvent(t, bufio.NewReader(resp.Body))
		from = e.Object.Metadata.ResourceVersion
		if e.Type != "MODIFIED" || e.Object.Metadata.Name != "aa" || from != l.Metadata.ResourceVersion {
			t.Errorf("%s connection: %+v; the list was of %s", connection, e, l.Metadata.ResourceVersion)
		}
	}
}

// TestFleetWatchDifferenceOfRows fails if a watch of rows without objects ends with 410 when its history is gone.
func TestFleetWatchDifferenceOfRows(t *testing.T) {
	table := func(r *http.Request, version, podVersion string) string {
		object := "null"
		if r.URL.Query().Get("includeObject") != "None" {
			object = `{"metadata":{"name":"aa","namespace":"x","uid":"u","resourceVersion":"` + podVersion + `"}}`
		}
		return `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"` + version +
			`"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["aa"],"object":` + object + `}]}`
	}
	idle := func(flush func(string), r *http.Request) {
		flush("")
		<-r.Context().Done()
	}
	var watched atomic.Bool
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), r *http.Request) {
		if !watched.Load() || r.URL.Query().Get("resourceVersionMatch") == "Exact" {
			flush(table(r, "5", "4"))
		} else {
			flush(table(r, "950", "900"))
		}
	}, func(flush func(string), r *http.Request) {
		if watched.Swap(true) {
			idle(flush, r)
		}
		flush(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
			`"reason":"Expired","code":410}}` + "\n")
	}), serveWatch(func(flush func(string), _ *http.Request) { flush(podList("7")) }, idle))
	rows := http.Header{"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}}
	lines := bufio.NewReader(h.Do("GET", "/fleet/api/v1/pods?watch=1&includeObject=None", rows, "").Body)
	for _, want := range []string{"ADDED", "MODIFIED"} {
		if e := nextEvent(t, lines); e.Type != want {
			t.Fatalf("%+v, want %s", e, want)
		}
	}
}

// TestFleetWatchOfOtherLists has a cluster without history, whose lists have other versions than requested. It fails if
// the client keeps an object that is gone, or gets a version earlier than its own.
func TestFleetWatchOfOtherLists(t *testing.T) {
	const late = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"aa","namespace":"x",` +
		`"resourceVersion":"7"}}],"metadata":{"resourceVersion":%q}}`
	for name, tt := range map[string]struct{ then, now string }{
		"it ignores Exact":                      {podList("950", "x/aa"), podList("950", "x/aa")},
		"it ignores Exact, version at the end":  {fmt.Sprintf(late, "950"), podList("950")},
		"it is behind":                          {podList("5", "x/aa"), podList("3", "x/aa")},
		"it is behind, version at the end":      {podList("5"), fmt.Sprintf(late, "3")},
		"it has no version":                     {podList("5", "x/aa"), podList("", "x/aa")},
		"it had no version, version at the end": {fmt.Sprintf(late, ""), podList("950")},
	} {
		t.Run(name, func(t *testing.T) {
			var watched atomic.Bool
			h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), r *http.Request) {
				switch {
				case !watched.Load(): // the list of the client
					flush(podList("5", "x/aa", "x/bb"))
				case r.URL.Query().Get("resourceVersionMatch") == "Exact":
					flush(tt.then)
				case r.URL.Query().Get("limit") == "1": // the gateway reads the current version
					flush(podList("950"))
				default:
					flush(tt.now)
				}
			}, func(flush func(string), r *http.Request) {
				if watched.Swap(true) {
					flush("") // only a watch that went on after the lists
					<-r.Context().Done()
				}
				flush(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
					`"reason":"Expired","code":410}}` + "\n")
			}), serveWatch(func(flush func(string), _ *http.Request) { flush(podList("7")) },
				func(flush func(string), r *http.Request) {
					flush("")
					<-r.Context().Done()
				}))
			l, _ := h.list("/fleet/api/v1/pods", nil)
			lines := bufio.NewReader(h.Do("GET", "/fleet/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion="+
				l.Metadata.ResourceVersion, nil, "").Body)
			e := nextEvent(t, lines)
			if e.Type != "ERROR" && strings.HasSuffix(name, "version at the end") {
				e = nextEvent(t, lines) // after the one that was sent before the version was known
			}
			if e.Type != "ERROR" || e.Object.Code != http.StatusGone {
				t.Errorf("%+v, want 410", e)
			}
		})
	}
}

// TestFleetWatchBrokenList fails if a broken list delays other clusters, ends the watch, or loses its cluster for good.
func TestFleetWatchBrokenList(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	for name, broken := range map[string]string{
		"no version": `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"none",` +
			`"namespace":"x"}}]}`,
		"no version, no pods": `{"kind":"PodList","apiVersion":"v1","items":[],"metadata":{}}`,
		"a head alone":        `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"40"},"items":[`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			well := make(chan struct{})
			idle := func(flush func(string), r *http.Request) {
				flush("")
				<-r.Context().Done()
			}
			h, _ := newFleet(t, gatewaytest.Options{},
				serveWatch(func(flush func(string), _ *http.Request) { flush(podList("5", "x/of-a")) }, idle),
				serveWatch(func(flush func(string), _ *http.Request) {
					select {
					case <-well:
						flush(podList("40", "x/of-b"))
					default:
						flush(broken)
						if name == "a head alone" {
							panic(http.ErrAbortHandler)
						}
					}
				}, idle))
			resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&"+initialEvents, nil, "")
			lines := bufio.NewReader(resp.Body)
			if e := nextEvent(t, lines); e.Object.Metadata.Name != "of-a" {
				t.Fatalf("%+v", e)
			}
			if e := nextEvent(t, lines); e.Type != "BOOKMARK" || !cursor.Composite(e.Object.Metadata.ResourceVersion) {
				t.Fatalf("%+v", e)
			}
			close(well)
			if e := nextEvent(t, lines); e.Object.Metadata.Name != "of-b" {
				t.Fatalf("%+v", e)
			}
		})
	}
}

// watchAfterList returns the handler of a member at version 5, and at version 8 once it is watched.
func watchAfterList(send func(flush func(string), version string)) http.HandlerFunc {
	at := new(atomic.Int32)
	at.Store(5)
	return serveWatch(func(flush func(string), _ *http.Request) {
		flush(podList(fmt.Sprint(at.Load())))
	}, func(flush func(string), r *http.Request) {
		at.Store(8)
		send(flush, r.URL.Query().Get("resourceVersion"))
		<-r.Context().Done()
	})
}

// TestFleetWatchBadEvent fails if an invalid event stops other clusters, or if a version covers it undelivered.
func TestFleetWatchBadEvent(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	event := func(name, version, annotations string) string {
		return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,`+
			`"namespace":"x","resourceVersion":%q,"annotations":%s}}}`+"\n", name, version, annotations)
	}
	const good = "{}"
	for name, bad := range map[string]string{
		"annotations that are none":   "[]",
		"annotations that come twice": `{},"annotations":{}`,
		"metadata that comes twice":   `{}},"metadata":{"name":"x"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watchedFrom := make(chan string, 100) // the versions from which b is watched
			var tries atomic.Int32
			refused := make(chan struct{})
			h, _ := newFleet(t, gatewaytest.Options{}, watchAfterList(func(flush func(string), _ string) {
				flush("")
				<-refused
				flush(event("of-a", "6", good))
			}), watchAfterList(func(flush func(string), version string) {
				watchedFrom <- version
				if version == "5" {
					flush(event("first", "7", good))
				}
				switch tries.Add(1) {
				case 1:
					flush(event("bad", "8", bad))
				case 2:
					close(refused)
					flush(event("bad", "8", bad))
				default:
					flush(event("repaired", "8", good))
				}
			}))
			l, _ := h.list("/fleet/api/v1/pods", nil)
			resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&resourceVersion="+l.Metadata.ResourceVersion, nil, "")
			lines := bufio.NewReader(resp.Body)
			var got []string
			isRepaired := false // whether event 8 of b was delivered
			for range 3 {
				e := nextEvent(t, lines)
				got = append(got, e.Type+" "+e.Object.Metadata.Name)
				isRepaired = isRepaired || e.Object.Metadata.Name == "repaired"
				v, err := cursor.ParseVersion(e.Object.Metadata.ResourceVersion)
				covers := slices.Contains(slices.Collect(maps.Values(v)), "8")
				if err != nil || covers != isRepaired {
					t.Errorf("%s has version %v, %v", got[len(got)-1], v, err)
				}
			}
			if text := strings.Join(got, ", "); text != "ADDED first, ADDED of-a, ADDED repaired" &&
				text != "ADDED first, ADDED repaired, ADDED of-a" {
				t.Error(text)
			}
			if from := []string{<-watchedFrom, <-watchedFrom, <-watchedFrom}; strings.Join(from, " ") != "5 7 7" {
				t.Errorf("b is watched from %q", from)
			}
		})
	}
}

// TestFleetWatchWentBack fails if clients of a restored cluster miss events until it reaches its old version.
func TestFleetWatchWentBack(t *testing.T) {
	var at atomic.Int32
	at.Store(50)
	restored := make(chan struct{})
	idle := func(flush func(string), r *http.Request) {
		flush("")
		<-r.Context().Done()
	}
	const tooLarge = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"Timeout: Too large resource version: 50, current: 20","reason":"Timeout",` +
		`"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]},"code":504}`
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string),
		_ *http.Request) {
		flush(podList("5"))
	}, idle), func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Get("watch") != "":
			before := at.Load() == 50
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			if before {
				<-restored // the restore restarts the cluster, which ends the watch
				return
			}
			<-r.Context().Done()
		case query.Get("resourceVersionMatch") == "Exact" && at.Load() < 50:
			respond(504, tooLarge)(w, r)
		default:
			respond(200, podList(fmt.Sprint(at.Load())))(w, r)
		}
	})
	l, _ := h.list("/fleet/api/v1/pods", nil)
	from := "/fleet/api/v1/pods?watch=1&resourceVersion=" + l.Metadata.ResourceVersion
	runs := h.Do("GET", from, nil, "")
	at.Store(20)
	close(restored)
	var e struct {
		Type   string
		Object metav1.Status
	}
	if err := json.NewDecoder(runs.Body).Decode(&e); err != nil || e.Type != "ERROR" || e.Object.Code != 410 ||
		!strings.Contains(e.Object.Message, `cluster "b"`) {
		t.Errorf("the watch that runs: %+v, %v", e, err)
	}
	gatewaytest.WantStatus(t, h.Do("GET", from, nil, ""), 410, "expired",
		`cluster "b" is at an earlier version than before`)
	if resp := h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, ""); resp.StatusCode != 200 {
		t.Errorf("a new watch: %s", resp.Status)
	}
}

// TestFleetWatchEarlierEvent fails if an event with an earlier version is delivered, so that a resume repeats events.
func TestFleetWatchEarlierEvent(t *testing.T) {
	var watches atomic.Int32
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
		flush(podList([]string{"52", "53"}[min(1, watches.Load())]))
	}, func(flush func(string), r *http.Request) {
		switch watches.Add(1) {
		case 1:
			flush(podEvent("ADDED", "first", "53") + podEvent("ADDED", "earlier", "9"))
		default:
			if got := r.URL.Query().Get("resourceVersion"); got != "53" {
				t.Errorf("the next watch begins at %s", got)
			}
			flush(podEvent("ADDED", "second", "54"))
		}
		<-r.Context().Done()
	}))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "")
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"first", "second"} {
		if e := nextEvent(t, lines); e.Object.Metadata.Name != want {
			t.Errorf("%+v, want %s", e, want)
		}
	}
}

// TestFleetWatchColumns fails if kubectl get -w prints cells of a cluster under another one's columns.
func TestFleetWatchColumns(t *testing.T) {
	row := func(columns, name, version, cells string) string {
		return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1",`+
			`"metadata":{"resourceVersion":%q},"columnDefinitions":[%s],"rows":[{"cells":[%s],`+
			`"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"x",`+
			`"resourceVersion":%q}}}]}}`+"\n",
			version, columns, cells, name, version)
	}
	const list = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},` +
		`"columnDefinitions":[{"name":"Name"}],"rows":[]}`
	ready := make([]chan struct{}, 4) // closed when the event of that number may be sent
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	sending := func(events map[int]string) http.HandlerFunc {
		return serveWatch(func(flush func(string), _ *http.Request) { flush(list) },
			func(flush func(string), r *http.Request) {
				flush("")
				for i, isReady := range ready {
					if events[i] == "" {
						continue
					}
					select {
					case <-isReady:
						flush(events[i])
					case <-r.Context().Done():
						return
					}
				}
				<-r.Context().Done()
			})
	}
	const name, status, age, color = `{"name":"Name","format":"name"}`, `{"name":"Ready"}`, `{"name":"Age"}`,
		`{"name":"Color"}`
	h, _ := newFleet(t, gatewaytest.Options{},
		sending(map[int]string{0: row(name+","+status+","+age, "a1", "6", `"a1","1/1","5d"`),
			2: row("", "a2", "7", `"a2","0/1","1d"`)}),
		sending(map[int]string{1: row(name+","+color+","+age, "b1", "6", `"b1","red","3d"`),
			3: row("", "b2", "7", `"b2","blue","2d"`)}))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1",
		http.Header{"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}}, "")
	lines := bufio.NewReader(resp.Body)
	var columns []string
	for i, want := range []string{
		"Name=a1 Cluster=a Ready=1/1 Age=5d",
		"Name=b1 Cluster=b Color=red Ready=<nil> Age=3d",
		"Name=a2 Cluster=a Color=<nil> Ready=0/1 Age=1d",
		"Name=b2 Cluster=b Color=blue Ready=<nil> Age=2d",
	} {
		close(ready[i])
		line, err := lines.ReadBytes('\n')
		var e struct{ Object listing }
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			t.Fatalf("%v after %q", err, line)
		}
		if defs := e.Object.ColumnDefinitions; len(defs) > 0 {
			columns = nil
			for _, d := range defs {
				columns = append(columns, d.Name)
			}
		}
		var got []string
		for i, cell := range e.Object.Rows[0].Cells {
			got = append(got, fmt.Sprintf("%s=%v", columns[i], cell))
		}
		if text := strings.Join(got, " "); text != want || (i > 1) != (len(e.Object.ColumnDefinitions) == 0) {
			t.Errorf("%s, want %s; %d columns announced", text, want, len(e.Object.ColumnDefinitions))
		}
	}
}
