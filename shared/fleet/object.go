package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// maxBody is what kube-apiserver takes of a request.
const maxBody = 3 << 20

// get answers with the one object of that name.
func (q *ask) get(w http.ResponseWriter, targets []members.Target) error {
	accept, err := acceptJSON(q.r.Header)
	if err != nil {
		return err
	}
	found, failures, err := q.find(targets, func(t members.Target) (members.Call, error) {
		query := url.Values{}
		for k, v := range q.query {
			query[k] = v
		}
		if v := query.Get("resourceVersion"); cursor.Composite(v) {
			asked, err := cursor.ParseVersion(v)
			if err != nil {
				return members.Call{}, status.New(status.BadRequest, t.Name, "%w", err)
			}
			if own, ok := asked[t.ID]; ok {
				query.Set("resourceVersion", own)
			} else { // it has shown nothing yet: whatever it shows is not older
				query.Del("resourceVersion")
			}
		}
		return members.Call{Method: http.MethodGet, Path: q.route.Path, Query: query, Header: http.Header{"Accept": {accept}, "Accept-Encoding": {"identity"}}}, nil
	})
	if err != nil {
		return err
	}
	if found == nil {
		return q.notFound(w, failures)
	}
	if q.guardsEdit() {
		return q.refuseBare(found.Name)
	}
	q.reached(found.Name)
	members.Warn(w.Header(), failures)
	return q.answer(w, found)
}

// found is the answer of the one member that has an object.
type found struct {
	*members.Answer
	body []byte
}

// find asks every target and returns the answer of the one that has the object; nil, with why, where none has. Members that say 404 are
// among the failures then, and otherwise not; members that hide it from the caller are, too.
func (q *ask) find(targets []members.Target, out func(t members.Target) (members.Call, error)) (*found, []*members.Failure, error) {
	ctx, cancel := context.WithCancelCause(q.r.Context())
	defer cancel(nil)
	key := q.key()
	had, known := q.m.LastLocation(key)
	bodies := make([][]byte, len(targets))
	answers := q.m.Each(targets, func(i int, t members.Target) *members.Answer {
		o, err := out(t)
		if err != nil {
			return &members.Answer{Target: t, Err: q.m.Fail(q.r.Context(), t.Name, err)}
		}
		a := q.m.Do(ctx, t, o, func(a *members.Answer) (err error) {
			bodies[i], err = members.ReadLimited(a.Body, merge.MaxObject)
			return err
		})
		if a.Err == nil && known && t.ID == had && q.reads() {
			time.AfterFunc(members.GracePeriod, func() { cancel(members.ErrFoundElsewhere) })
		}
		return a
	})
	good, failures, err := members.Split(answers)
	if err != nil {
		return nil, nil, err
	}
	members.CloseAll(good)
	unknown := slices.DeleteFunc(slices.Clone(failures), (*members.Failure).IsNotFound)
	switch {
	case len(good) > 1 && !q.checksNamespace():
		return nil, nil, q.ambiguous(good)
	case len(unknown) > 0 && q.strict:
		return nil, nil, members.Summary(unknown)
	case len(good) > 0 && !q.reads():
		if err := q.doubtful(good[0], unknown); err != nil {
			return nil, nil, err
		}
	case len(good) == 0 && len(unknown) > 0 && !q.hidden(failures):
		return nil, nil, members.Summary(unknown) // it may be there
	case len(good) == 0:
		return nil, failures, nil
	}
	q.m.RememberLocation(key, good[0].ID)
	i := slices.Index(answers, good[0])
	return &found{good[0], bodies[i]}, unknown, nil
}

// doubtful returns why what changes an object, found in one member, may mean another's: that one did not say. One that the caller may not get the
// object of is none that they mean.
func (q *ask) doubtful(in *members.Answer, unknown []*members.Failure) error {
	doubts := slices.DeleteFunc(slices.Clone(unknown), q.hides)
	if len(doubts) == 0 {
		return nil
	}
	return &status.Error{Reason: status.MembersFailed, Err: errors.Join(members.Errors(doubts)...),
		Message: fmt.Sprintf("%s %q is in cluster %q, and perhaps in another: %s; to mean the one that is found, call it %s@%s",
			q.res.Resource, q.res.Name, in.Name, members.Texts(doubts), q.res.Name, in.Name)}
}

// hidden reports whether an object that no member gave is absent to the caller: a get of it, which names no cluster, found in at least one
// member that it is not there, and may not be made in the others. (What is to be made in a cluster that the caller may see, as by kubectl
// apply, has to be absent first.) That a member refuses the gateway, or its impersonation of the caller, is about another resource.
func (q *ask) hidden(failures []*members.Failure) bool {
	if q.strict || q.named != "" || q.only != nil || q.res.Verb != "get" || q.res.Subresource != "" {
		return false
	}
	absent := false
	for _, e := range failures {
		if !e.IsNotFound() && !q.hides(e) {
			return false
		}
		absent = absent || e.IsNotFound() && q.about(e)
	}
	return absent
}

// hides reports whether a member says that the caller may not get the object.
func (q *ask) hides(e *members.Failure) bool {
	return e.Code == http.StatusForbidden && q.about(e) && e.Status.Details.Kind == q.res.Resource && e.Status.Details.Group == q.res.APIGroup
}

// about reports whether a member's refusal names the object.
func (q *ask) about(e *members.Failure) bool {
	return e.Status != nil && e.Status.Details != nil && e.Status.Details.Name == q.res.Name
}

// ambiguous is the error for a name that several clusters have. It names the forms to use. For kubectl, a conflict of a
// server-side apply is one of field managers, so that is another error.
func (q *ask) ambiguous(of []*members.Answer) error {
	reason := status.Ambiguous
	if isApply(q.r.Header.Get("Content-Type")) {
		reason = status.NoPlacement
	}
	names, ways := make([]string, len(of)), make([]string, len(of))
	for i, a := range of {
		names[i], ways[i] = a.Name, q.res.Name+"@"+a.Name
	}
	return status.New(reason, "", "%s %q is in %d clusters: %s; name one of them, as %s", q.res.Resource, q.res.Name, len(of),
		strings.Join(names, ", "), strings.Join(ways, " or "))
}

// notFound passes on a member's 404, rather one that is about the object than one about the kind, and warns of members that say otherwise.
func (q *ask) notFound(w http.ResponseWriter, failures []*members.Failure) error {
	members.Warn(w.Header(), slices.DeleteFunc(slices.Clone(failures), (*members.Failure).IsNotFound))
	best := failures[slices.IndexFunc(failures, (*members.Failure).IsNotFound)]
	for _, e := range failures {
		if e.IsNotFound() && e.Status != nil && e.Status.Details != nil && e.Status.Details.Name != "" {
			best = e
			break
		}
	}
	return q.refuse(w, best)
}

// refuse passes a member's refusal on as it is.
func (q *ask) refuse(w http.ResponseWriter, e *members.Failure) error {
	if e.Raw == nil {
		return members.Summary([]*members.Failure{e})
	}
	out := &status.Error{Reason: status.MembersRefused, Cluster: e.Cluster, Message: e.Message, As: e.Status}
	writeJSON(w, e.Code, q.called(e.Cluster).Status(e.Raw))
	return out
}

// answer passes a member's answer on, with the cluster that it is from.
func (q *ask) answer(w http.ResponseWriter, a *found) error {
	out, err := q.rewritten(a)
	if err != nil {
		return &status.Error{Reason: status.Aborted, Cluster: a.Name, Err: err, Message: fmt.Sprintf("the answer of cluster %q cannot be read: %v", a.Name, err)}
	}
	members.PassWarnings(w.Header(), []*members.Answer{a.Answer})
	writeJSON(w, a.Response.StatusCode, out)
	return nil
}

// answerWrite answers a write that the member has done. An answer that cannot be read is replaced by a Status of
// success: after an error, clients would write again.
func (q *ask) answerWrite(w http.ResponseWriter, a *members.Answer, body []byte, err error) {
	members.PassWarnings(w.Header(), []*members.Answer{a})
	var out []byte
	if err == nil {
		out, err = q.rewritten(&found{a, body})
	}
	if err == nil {
		writeJSON(w, a.Response.StatusCode, out)
		return
	}
	text := fmt.Sprintf("cluster %q has done the write, but its answer cannot be passed on: %v; read the object", a.Name,
		err)
	q.f.cfg.Log.Warn("the answer of a write cannot be passed on", "cluster", a.Name, "error", err.Error())
	members.AddWarning(w.Header(), text)
	status.WriteSuccess(w, a.Response.StatusCode, metav1.Status{Message: text})
}

// rewritten returns the body of a member's answer as the client gets it. Only Kubernetes' own Status and Table are
// exempt from the annotation: custom resources may be called so, too.
func (q *ask) rewritten(a *found) ([]byte, error) {
	object, err := merge.ObjectOf(a.body)
	if err != nil {
		return nil, err
	}
	how := q.called(a.Name)
	kind, said := merge.KindOf(object)
	switch {
	case said && kind.Kind == "":
		return nil, errors.New("its kind is missing, is there twice or is no kind")
	case kind.Kind == "Status" && kind.APIVersion == "v1":
		return how.Status(object.Text), nil
	case merge.IsTable(kind.Kind, kind.APIVersion):
		return table(a.Name, object.Text, how)
	}
	return how.Append(nil, object)
}

// table rewrites a Table of one object, whose version stays the member's own. More rows are an error, since their cells
// could take many times the bytes that the member sent.
func table(cluster string, body []byte, how *naming.Answer) ([]byte, error) {
	s, err := merge.Open(cluster, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	layout := merge.NewLayout(s.Columns)
	rows := layout.For(cluster, s.Columns, how)
	out := &sink{}
	out.head(s)
	var list []byte
	for n := 0; ; n++ {
		row, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if n > 0 {
			return nil, fmt.Errorf("the table of cluster %q has more than one row", cluster)
		}
		if list, err = rows.Append(list, row); err != nil {
			return nil, err
		}
	}
	m, err := json.Marshal(s.Metadata())
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{%s"metadata":%s,"columnDefinitions":%s,"rows":[%s]}`+"\n", out.buf, m, layout.Definitions(), list), nil
}

func writeJSON(w http.ResponseWriter, code int, body []byte) {
	writeTyped(w, "application/json", code, body)
}

func writeTyped(w http.ResponseWriter, contentType string, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) //nolint:gosec // JSON or protobuf of a Kubernetes API, which says so and is not sniffed; the client may be gone
}

// objectPath is the path of the object, without a subresource.
func (q *ask) objectPath() string { return q.listPath() + "/" + url.PathEscape(q.object()) }

// listPath is the path of the list that the object would be in.
func (q *ask) listPath() string {
	var b strings.Builder
	if q.res.APIGroup == "" {
		b.WriteString("/api/")
	} else {
		b.WriteString("/apis/" + url.PathEscape(q.res.APIGroup) + "/")
	}
	b.WriteString(url.PathEscape(q.res.APIVersion))
	if q.res.Namespace != "" && q.res.Resource != "namespaces" {
		b.WriteString("/namespaces/" + url.PathEscape(q.res.Namespace))
	}
	b.WriteString("/" + url.PathEscape(q.res.Resource))
	return b.String()
}

// owner returns the target that has the object. Without one it returns nil and the failures. A single target
// is not asked unless ask is set, and is returned without a body.
func (q *ask) owner(w http.ResponseWriter, targets []members.Target, ask bool) (*found, []*members.Failure, error) {
	if len(targets) == 1 && !ask {
		return &found{Answer: &members.Answer{Target: targets[0]}}, nil, nil
	}
	header := http.Header{"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"}, "Accept-Encoding": {"identity"}, "Content-Type": nil, "Upgrade": nil, "Connection": nil}
	for name := range q.r.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			header[name] = nil
		}
	}
	in, failures, err := q.find(targets, func(members.Target) (members.Call, error) {
		return members.Call{Method: http.MethodGet, Path: q.objectPath(), Header: header}, nil
	})
	if err != nil || in == nil {
		return nil, failures, err
	}
	members.Warn(w.Header(), failures)
	return in, nil, nil
}

// pass sends a call whose answer is no object on to the object's cluster.
func (q *ask) pass(w http.ResponseWriter, targets []members.Target) (*forward.Call, error) {
	t, failures, err := q.owner(w, targets, false)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, q.notFound(w, failures)
	}
	return q.next(t.Name), nil
}

// body reads the request's body.
func (q *ask) body() (*naming.Body, error) {
	contentType := q.r.Header.Get("Content-Type")
	data, err := io.ReadAll(io.LimitReader(q.r.Body, maxBody+1))
	var late *status.Error
	switch {
	case errors.As(err, &late):
		return nil, late
	case err != nil:
		return nil, status.New(status.BadRequest, "", "the body broke off before its end")
	case len(data) > maxBody:
		return nil, status.New(status.TooLarge, "", "the body is larger than %d MiB", maxBody>>20)
	case len(data) > 0 && !naming.Readable(contentType):
		return nil, status.New(status.UnsupportedMedia, "", "the fleet reads bodies in JSON, YAML and protobuf, since they say where an object is; this is %.100q", contentType)
	}
	references := q.references()
	if q.r.Method == http.MethodDelete {
		references = naming.Deletion
	}
	return decoded(q, len(data), "", func() (*naming.Body, error) { return naming.Parse(references, contentType, data) })
}

// write changes one object where it is: PUT, PATCH and DELETE, and all methods of its subresources.
func (q *ask) write(w http.ResponseWriter, targets []members.Target) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	targets, placement, err := q.place(targets, body)
	if err != nil {
		return err
	}
	guarded, hides := q.guards(placement, body), placement == "" && q.hidesPlacement()
	t, failures, err := q.owner(w, targets, guarded || hides)
	switch {
	case err != nil:
		return err
	case t == nil && isApply(q.r.Header.Get("Content-Type")) && q.res.Subresource == "":
		return q.unplaced(targets, "") // it would make one
	case t == nil:
		return q.notFound(w, failures)
	case guarded:
		return q.refuseBare(t.Name)
	case hides:
		if stored := storedPlacement(t.body); stored != "" && stored != t.Name {
			return q.refuseBare(t.Name)
		}
	}
	return q.send(w, t.Target, body)
}

// place returns the cluster that the annotations in a body name, "" if they name none. If the request itself names no
// cluster, the placement selects the target, also where another cluster has an object of that name.
func (q *ask) place(targets []members.Target, body *naming.Body) (placed []members.Target, placement string, err error) {
	_, placement, source := body.Metadata()
	switch {
	case placement == "":
		placement = source
	case q.named == "" && source != "" && source != placement:
		return nil, "", status.New(status.NoPlacement, "", "the object is of cluster %q by its annotation %s, and was read from %q: call it %s@%s, or the other, to say which is meant",
			placement, naming.PlacementAnnotation, source, q.res.Name, source)
	}
	if placement != "" && q.named == "" {
		i := slices.IndexFunc(targets, func(t members.Target) bool { return t.Name == placement })
		if i < 0 {
			return nil, "", status.New(status.NoPlacement, "", "the object is of cluster %q, as its annotations say, and that takes no part here: without them, or by NAME@CLUSTER, another's can be meant", placement)
		}
		targets = targets[i : i+1]
		if q.res.Subresource == "" { // of one there is none to make
			q.placed = placement
		}
	}
	return targets, placement, nil
}

// send makes a write to one member and answers with its answer.
func (q *ask) send(w http.ResponseWriter, t members.Target, body *naming.Body) error {
	accept, err := acceptJSON(q.r.Header)
	if err != nil {
		return err
	}
	path, name, other := body.Apart(t.Name, q.known)
	switch {
	case q.unknowable != nil:
		return q.unknowable
	case other != "":
		return q.apart(t.Name, path, name, other)
	}
	data, err := q.forMember(t, body)
	if err != nil {
		return err
	}
	if err := q.checkDuplicates(w.Header(), body, data); err != nil {
		return err
	}
	q.reached(t.Name)
	var answered []byte
	a := q.m.Do(q.r.Context(), t, members.Call{Method: q.r.Method, Path: q.route.Path, Query: q.query, Body: data, Write: true,
		Header: http.Header{"Accept": {accept}, "Accept-Encoding": {"identity"}}}, func(a *members.Answer) (err error) {
		answered, err = members.ReadLimited(a.Body, merge.MaxObject)
		return err
	})
	var e *members.Failure
	failed := errors.As(a.Err, &e)
	switch {
	case a.Err != nil && !failed: // the client has gone
		return a.Err
	case a.Succeeded():
		members.CloseAll([]*members.Answer{a})
		q.answerWrite(w, a, answered, a.Err)
		return nil
	case e.IsNotFound() && q.placed != "":
		// kubectl apply saw one of that name elsewhere, and so changes what is to be made here.
		e.Raw, e.Message = nil, fmt.Sprintf("%s: its annotations say that it is of cluster %q; to make it there while another cluster has one of that name, call it %s@%s, or use kubectl apply --server-side",
			e.Message, q.placed, q.res.Name, q.placed)
	}
	return q.refuse(w, e)
}

// apart returns the error for an object with a reference into another cluster. Nothing would be found there, and without
// its owner the object would be deleted.
func (q *ask) apart(cluster, path, name, other string) error {
	return status.New(status.NoPlacement, cluster, "the object cannot be written to cluster %q: "+
		"%s has %q, which is in cluster %q; name an object of its own cluster there, or one whose own name is that as %s@%s",
		cluster, path, name, other, name, cluster)
}
