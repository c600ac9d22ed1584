package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/route"
)

// recordedMember serves recorded documents, which costs it nearly nothing. Members share recordings.
type recordedMember struct {
	*recording
	churn   float64      // events a second in each watch
	version atomic.Int64 // last event; 0 before
}

// recording has the documents of a cluster with pods.
type recording struct {
	pods, rows items  // rows are the pods in a Table
	before     []byte // JSON of a pod before and after its name
	after      []byte
	documents  map[string][]byte // discovery and OpenAPI by path; aggregated discovery has the prefix "aggregated "
}

// items is the content of a JSON array.
type items struct {
	text []byte // with commas between
	ends []int  // offset after each item, without the comma
}

func (i *items) add(item []byte) {
	if len(i.ends) > 0 {
		i.text = append(i.text, ',')
	}
	i.text = append(i.text, item...)
	i.ends = append(i.ends, len(i.text))
}

// from returns the items from start to end, with commas between.
func (i *items) from(start, end int) []byte {
	if start == 0 {
		return i.text[:i.ends[end-1]]
	}
	return i.text[i.ends[start-1]+1 : i.ends[end-1]]
}

// newRecording returns a recording. openAPI is its document, with a title for each value of distinct.
func newRecording(pods, distinct int, openAPI []byte) (*recording, error) {
	before, after, err := pod()
	if err != nil {
		return nil, err
	}
	var whole struct{ Metadata json.RawMessage }
	if err := json.Unmarshal(slices.Concat(before, []byte(namePlaceholder), after), &whole); err != nil {
		return nil, err
	}
	beforeName, afterName, _ := bytes.Cut(whole.Metadata, []byte(namePlaceholder))
	r := &recording{before: before, after: after, documents: recordedDiscovery(distinct, openAPI)}
	for i := range pods {
		name := fmt.Appendf(nil, `"name":"pod-%06d","resourceVersion":"%d"`, i, i+1)
		r.pods.add(slices.Concat(before, name, after))
		r.rows.add(slices.Concat(fmt.Appendf(nil, podCells, i), beforeName, name, []byte(","+managedFields), afterName,
			[]byte("}}")))
	}
	return r, nil
}

// Parts of a Table with the columns and rows of kube-apiserver. A row contains the metadata of its pod.
const (
	podColumns = `"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"","priority":0},` +
		`{"name":"Ready","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Status","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Restarts","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Age","type":"string","format":"","description":"","priority":0},` +
		`{"name":"IP","type":"string","format":"","description":"","priority":1},` +
		`{"name":"Node","type":"string","format":"","description":"","priority":1},` +
		`{"name":"Nominated Node","type":"string","format":"","description":"","priority":1},` +
		`{"name":"Readiness Gates","type":"string","format":"","description":"","priority":1}]`
	podCells = `{"cells":["pod-%06d","2/2","Running","0","12d","10.0.0.1","node-17","\u003cnone\u003e",` +
		`"\u003cnone\u003e"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`
	managedFields = `"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",` +
		`"time":"2026-09-21T12:53:20Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},` +
		`"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{}}},"f:spec":{` +
		`"f:containers":{"k:{\"name\":\"container-0\"}":{".":{},"f:env":{".":{}},"f:image":{},"f:imagePullPolicy":{},` +
		`"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:volumeMounts":{".":{}}}},"f:dnsPolicy":{},` +
		`"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{}}}},{"manager":"kubelet","operation":"Update",` +
		`"apiVersion":"v1","time":"2026-09-21T12:53:24Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{` +
		`"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},` +
		`"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}},"subresource":"status"}]`
)

const apiResources = `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods",` +
	`"singularName":"pod","namespaced":true,"kind":"Pod","shortNames":["po"],"verbs":["get","list","watch"]}]}`

const aggregatedCore = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` +
	`{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"pods","responseKind":{"group":"",` +
	`"version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list","watch"]}]}]}]}`

// recordedDiscovery returns discovery with 100 groups of custom resources. The document of each group is openAPI, with
// another title for each value of distinct.
func recordedDiscovery(distinct int, openAPI []byte) map[string][]byte {
	const groups = 100
	docs := map[string][]byte{
		"/api/v1": []byte(apiResources), "aggregated /api": []byte(aggregatedCore), "/version": []byte(`{}`),
		"/openapi/v3/api/v1": openAPI,
	}
	const title = `"title":"Kubernetes`
	ofGroups := bytes.Replace(openAPI, []byte(title), fmt.Appendf(nil, "%s %d", title, distinct), 1)
	aggregated := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`
	index := `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=core"}`
	for g := range groups {
		name := fmt.Sprintf("g%02d.example.com", g)
		if g > 0 {
			aggregated += ","
		}
		aggregated += fmt.Sprintf(`{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[{"resource":"things",`+
			`"responseKind":{"group":%q,"version":"v1","kind":"Thing"},"scope":"Namespaced","singularResource":"thing",`+
			`"verbs":["get","list","watch"]}]}]}`, name, name)
		path := "/openapi/v3/apis/" + name + "/v1"
		index += fmt.Sprintf(`,"apis/%s/v1":{"serverRelativeURL":"%s?hash=%d"}`, name, path, distinct)
		docs[path] = ofGroups
	}
	docs["aggregated /apis"] = []byte(aggregated + "]}")
	docs["/openapi/v3"] = []byte(index + "}}")
	return docs
}

// ServeHTTP implements http.Handler.
func (m *recordedMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == podsPath {
		if route.Truthy(r.URL.RawQuery, "watch") {
			m.watch(w, r)
		} else {
			m.list(w, r)
		}
		return
	}
	doc, ok := m.documents["aggregated "+r.URL.Path]
	if ok {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	} else if doc, ok = m.documents[r.URL.Path]; !ok {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404}`, http.StatusNotFound)
		return
	}
	_, _ = w.Write(doc) // the client may be gone
}

// list writes the pods from the offset of continue, at most limit. It writes a Table if the client accepts one.
func (m *recordedMember) list(w http.ResponseWriter, r *http.Request) {
	content, kind, columns, field := &m.pods, `"kind":"PodList","apiVersion":"v1"`, "", "items"
	if strings.Contains(r.Header.Get("Accept"), "as=Table") {
		content, kind = &m.rows, `"kind":"Table","apiVersion":"meta.k8s.io/v1"`
		columns, field = podColumns+",", "rows"
	}
	start, version := 0, max(listVersion, m.version.Load())
	_, _ = fmt.Sscanf(r.URL.Query().Get("continue"), "%d@%d", &start, &version) // without one, they stay
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	end := len(content.ends)
	if limit > 0 {
		end = min(end, start+limit)
	}
	more := ""
	if end < len(content.ends) {
		more = fmt.Sprintf(`,"continue":"%d@%d","remainingItemCount":%d`, end, version, len(content.ends)-end)
	}
	_, _ = fmt.Fprintf(w, `{%s,"metadata":{"resourceVersion":"%d"%s},%s"%s":[`, kind, version, more, columns, field)
	_, _ = w.Write(content.from(start, end)) // the client may be gone
	_, _ = w.Write([]byte("]}\n"))
}

// minWatch is the minimum duration of a watch. It ends within twice that time, as those of kube-apiserver do.
const minWatch = 10 * time.Minute

// watch writes events after the requested resourceVersion. Versions are consecutive, also after a client resumes.
func (m *recordedMember) watch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), minWatch+rand.N(minWatch))
	defer cancel()
	version, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		version = listVersion
	}
	flush := http.NewResponseController(w).Flush
	_ = flush()
	if m.churn == 0 {
		<-ctx.Done()
		return
	}
	ticks := time.NewTicker(time.Duration(float64(time.Second) / m.churn))
	defer ticks.Stop()
	for version++; ; version++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		m.version.Store(int64(version))
		buf := append([]byte(`{"type":"MODIFIED","object":`), m.before...)
		buf = fmt.Appendf(buf, `"name":"pod-000000","resourceVersion":"%d","annotations":{"sent":"%d"}`, version,
			version)
		if _, err := w.Write(append(append(buf, m.after...), "}\n"...)); err != nil || flush() != nil {
			return
		}
	}
}
