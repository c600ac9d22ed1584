package awssecrets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// manager is a fake Secrets Manager for the documented behaviour that moto lacks. Its errors quote the request.
type manager struct {
	t         *testing.T
	before    func(op string) // called before each operation, without the lock
	throttled []string        // refused operations

	mu      sync.Mutex
	secrets map[string]*managed
}

type managed struct {
	versions map[string]*version
	deleted  bool
	tags     map[string]string
}

type version struct {
	text   *string
	binary []byte
	stages []string
}

type request struct {
	SecretID            string `json:"SecretId"`
	Name                string
	ClientRequestToken  string
	SecretString        *string
	SecretBinary        []byte
	VersionStage        string
	VersionStages       []string
	MoveToVersionID     string `json:"MoveToVersionId"`
	RemoveFromVersionID string `json:"RemoveFromVersionId"`
	Tags                []struct{ Key, Value string }
	TagKeys             []string
	MaxResults          int
	NextToken           string
	Filters             []struct {
		Key    string
		Values []string
	}
}

type refusal struct{ code, message string }

func (r *refusal) Error() string { return r.code }

func newManager(t *testing.T) (*manager, string) {
	t.Helper()
	m := &manager{t: t, secrets: map[string]*managed{}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return m, srv.URL
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest) // the client gave up
		return
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if m.before != nil {
		m.before(op)
	}
	m.mu.Lock()
	out, err := m.do(op, in)
	if err != nil {
		out = map[string]string{"__type": err.code, "message": err.message}
	}
	b, merr := json.Marshal(out)
	m.mu.Unlock()
	if merr != nil {
		m.t.Errorf("answer: %v", merr)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = w.Write(b)
}

func (m *manager) do(op string, in request) (any, *refusal) {
	if len(deref(in.SecretString)) > 65536 || len(in.SecretBinary) > 65536 {
		return nil, &refusal{
			"ValidationException", "1 validation error detected: Value '" + deref(in.SecretString) + "' is too long",
		}
	}
	if slices.Contains(m.throttled, op) {
		return nil, &refusal{"ThrottlingException", "Rate exceeded"}
	}
	switch op {
	case "ListSecrets":
		return m.list(in), nil
	case "CreateSecret":
		return m.create(in)
	}
	s := m.secrets[in.SecretID]
	if s == nil {
		return nil, &refusal{"ResourceNotFoundException", "Secrets Manager can't find the specified secret."}
	}
	switch op {
	case "DescribeSecret":
		return m.describe(in.SecretID, s), nil
	case "RestoreSecret":
		if !s.deleted {
			return nil, &refusal{"InvalidRequestException", "the secret is not scheduled for deletion"}
		}
		s.deleted = false
		return struct{}{}, nil
	}
	if s.deleted {
		return nil, &refusal{
			"InvalidRequestException", "You can't perform this operation on the secret because it was marked for deletion.",
		}
	}
	switch op {
	case "GetSecretValue":
		return m.get(in, s)
	case "PutSecretValue":
		return s.put(in)
	case "UpdateSecretVersionStage":
		return s.move(in)
	case "DeleteSecret":
		s.deleted = true
	case "TagResource":
		return s.tag(in)
	case "UntagResource":
		for _, k := range in.TagKeys {
			delete(s.tags, k)
		}
	default:
		m.t.Errorf("unexpected operation %s", op)
	}
	return struct{}{}, nil
}

func (m *manager) create(in request) (any, *refusal) {
	if s := m.secrets[in.Name]; s != nil && s.deleted {
		return nil, &refusal{
			"InvalidRequestException",
			"You can't create this secret because a secret with this name is already scheduled for deletion.",
		}
	} else if s != nil {
		if v := s.versions[in.ClientRequestToken]; v != nil && v.hasValue(in) {
			return map[string]string{"VersionId": in.ClientRequestToken}, nil
		}
		return nil, &refusal{
			"ResourceExistsException", "The operation failed because the secret " + in.Name + " already exists.",
		}
	}
	s := &managed{versions: map[string]*version{}, tags: map[string]string{}}
	if _, err := s.tag(in); err != nil {
		return nil, err
	}
	in.VersionStages = []string{current}
	if _, err := s.put(in); err != nil {
		return nil, err
	}
	m.secrets[in.Name] = s
	return map[string]string{"VersionId": in.ClientRequestToken}, nil
}

func (s *managed) put(in request) (any, *refusal) {
	if in.SecretString == nil && in.SecretBinary == nil {
		return nil, &refusal{"InvalidParameterException", "You must provide either SecretString or SecretBinary."}
	}
	if v := s.versions[in.ClientRequestToken]; v != nil {
		if !v.hasValue(in) {
			return nil, &refusal{"ResourceExistsException", "the token was used for " + deref(v.text)}
		}
		return map[string]string{"VersionId": in.ClientRequestToken}, nil
	}
	if len(s.versions) == 0 && !slices.Contains(in.VersionStages, current) {
		in.VersionStages = append(in.VersionStages, current)
	}
	for _, v := range s.versions {
		v.stages = slices.DeleteFunc(v.stages, func(st string) bool { return slices.Contains(in.VersionStages, st) })
	}
	s.versions[in.ClientRequestToken] = &version{in.SecretString, in.SecretBinary, in.VersionStages}
	return map[string]string{"VersionId": in.ClientRequestToken}, nil
}

func (s *managed) move(in request) (any, *refusal) {
	to, from := s.versions[in.MoveToVersionID], ""
	for id, v := range s.versions {
		if slices.Contains(v.stages, in.VersionStage) {
			from = id
		}
	}
	if to == nil || from != in.RemoveFromVersionID {
		return nil, &refusal{"InvalidParameterException", "The parameter RemoveFromVersionId must be " + from}
	}
	if old := s.versions[from]; old != nil {
		for _, v := range s.versions {
			v.stages = slices.DeleteFunc(v.stages, func(st string) bool { return st == in.VersionStage || st == "AWSPREVIOUS" })
		}
		old.stages = append(old.stages, "AWSPREVIOUS")
	}
	to.stages = append(to.stages, in.VersionStage)
	return struct{}{}, nil
}

func (s *managed) tag(in request) (any, *refusal) {
	if len(s.tags)+len(in.Tags) > 50 {
		return nil, &refusal{"InvalidParameterException", "too many tags"}
	}
	for _, t := range in.Tags {
		s.tags[t.Key] = t.Value
	}
	return struct{}{}, nil
}

func (m *manager) get(in request, s *managed) (any, *refusal) {
	if in.VersionStage == "" {
		m.t.Error("a read names no stage")
	}
	for id, v := range s.versions {
		if slices.Contains(v.stages, in.VersionStage) {
			return map[string]any{
				"Name": in.SecretID, "VersionId": id, "VersionStages": v.stages, "CreatedDate": float64(time.Now().Unix()),
				"SecretString": v.text, "SecretBinary": v.binary,
			}, nil
		}
	}
	return nil, &refusal{
		"ResourceNotFoundException", "can't find the specified secret value for staging label: " + in.VersionStage,
	}
}

func (m *manager) describe(name string, s *managed) map[string]any {
	stages, tags := map[string][]string{}, []map[string]string{}
	for id, v := range s.versions {
		if len(v.stages) > 0 {
			stages[id] = v.stages
		}
	}
	for k, v := range s.tags {
		tags = append(tags, map[string]string{"Key": k, "Value": v})
	}
	out := map[string]any{
		"Name": name, "VersionIdsToStages": stages, "SecretVersionsToStages": stages, "Tags": tags,
		"LastChangedDate": float64(time.Now().Unix()),
	}
	if s.deleted {
		out["DeletedDate"] = float64(time.Now().Unix())
	}
	return out
}

func (m *manager) list(in request) any {
	limit := min(in.MaxResults, 100)
	var page []map[string]any
	for _, name := range slices.Sorted(maps.Keys(m.secrets)) {
		if name <= in.NextToken || m.secrets[name].deleted || !strings.HasPrefix(name, in.Filters[0].Values[0]) {
			continue
		}
		if len(page) == limit {
			return map[string]any{"SecretList": page, "NextToken": page[limit-1]["Name"]}
		}
		page = append(page, m.describe(name, m.secrets[name]))
	}
	return map[string]any{"SecretList": page}
}

func (v *version) hasValue(in request) bool {
	return deref(v.text) == deref(in.SecretString) && bytes.Equal(v.binary, in.SecretBinary)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (m *manager) show(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.secrets[name]
	if s == nil {
		return "none"
	}
	var out []string
	for _, v := range s.versions {
		if len(v.stages) > 0 && utf8.ValidString(deref(v.text)) {
			slices.Sort(v.stages)
			out = append(out, fmt.Sprintf("%s %v", deref(v.text), v.stages))
		}
	}
	slices.Sort(out)
	return fmt.Sprintf("%v deleted: %v", out, s.deleted)
}
