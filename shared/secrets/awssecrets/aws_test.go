package awssecrets

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/secrets/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

func openAt(t *testing.T, url string) *Store {
	t.Helper()
	s, err := New(Config{AWS: mototest.Config(url), Prefix: "p/"})
	if err != nil {
		t.Fatal(err)
	}
	s.timeout = patience
	return s
}

func value(s string) secrets.Value { return secrets.NewValue([]byte(s)) }

func TestAWS(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) func() secrets.Store {
			_, url := newManager(t)
			return func() secrets.Store { return openAt(t, url) }
		},
		Denied: func(t *testing.T) secrets.Store {
			_, url := newManager(t)
			f := mototest.NewFront(t, url)
			f.Deny()
			return openAt(t, f.URL)
		},
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, s *Store, name, want string) {
	t.Helper()
	sec, err := s.Get(t.Context(), name)
	if err != nil {
		t.Errorf("get %s: %v", name, err)
	} else if got := string(sec.Value.Reveal()); got != want {
		t.Errorf("get %s: %q, want %q", name, got, want)
	}
}

func TestColdReadIsOneCall(t *testing.T) {
	f, s := startMoto(t)
	before := f.Calls("")
	if _, err := s.Get(t.Context(), storesuite.SampleName); err != nil {
		t.Fatal(err)
	}
	if n := f.Calls("") - before; n != 1 || f.Calls("GetSecretValue") == 0 {
		t.Errorf("%d calls to Secrets Manager, want one", n)
	}
}

// TestAnswersAreLost: a write that AWS did although its response was lost succeeds.
func TestAnswersAreLost(t *testing.T) {
	for _, op := range []string{
		"CreateSecret", "PutSecretValue", "UpdateSecretVersionStage", "DeleteSecret", "RestoreSecret", "DescribeSecret",
		"TagResource", "UntagResource",
	} {
		t.Run(op, func(t *testing.T) {
			m, url := newManager(t)
			f := mototest.NewFront(t, url)
			s := openAt(t, f.URL)
			lose := func() { f.Lose(op, 1) }
			lose()
			v1, err := s.Create(t.Context(), "a", value("one"), map[string]string{"old": "x"})
			must(t, err)
			lose()
			v2, err := s.Replace(t.Context(), "a", v1, value("two"))
			must(t, err)
			wantValue(t, s, "a", "two")
			if _, err := s.Replace(t.Context(), "a", v1, value("x")); !errors.Is(err, secrets.ErrConflict) {
				t.Errorf("replace of an old version: %v", err)
			}
			lose()
			must(t, s.Delete(t.Context(), "a"))
			if want := "[deleted [AWSCURRENT CLUSTERPASS_CANDIDATE] two [AWSPREVIOUS]] deleted: true"; m.show("p/a") != want {
				t.Errorf("%s, want %s", m.show("p/a"), want)
			}
			lose()
			v3, err := s.Create(t.Context(), "a", value("three"), map[string]string{"new": "y"})
			must(t, err)
			wantValue(t, s, "a", "three")
			metas, err := s.List(t.Context(), map[string]string{"new": "y"})
			if err != nil || len(metas) != 1 || metas[0].Version != v3 || len(metas[0].Labels) != 1 || v3 == v2 {
				t.Errorf("list %+v, %v", metas, err)
			}
		})
	}
}

// TestDeletedByOthers: a secret that was deleted in the console, and so has no tombstone, can be created again.
func TestDeletedByOthers(t *testing.T) {
	m, url := newManager(t)
	s := openAt(t, url)
	_, err := s.Create(t.Context(), "a", value("old"), nil)
	must(t, err)
	m.secrets["p/a"].deleted = true
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("get: %v, want ErrNotFound", err)
	}
	_, err = s.Create(t.Context(), "a", value("new"), nil)
	must(t, err)
	wantValue(t, s, "a", "new")
}

// TestMadeWithoutAValue: a secret that a template made without a value can be created.
func TestMadeWithoutAValue(t *testing.T) {
	m, url := newManager(t)
	s := openAt(t, url)
	m.secrets["p/a"] = &managed{
		versions: map[string]*version{}, tags: map[string]string{"aws:cloudformation:stack-name": "s", "Cost Center": "7"},
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("get: %v, want ErrNotFound", err)
	}
	if metas, err := s.List(t.Context(), nil); err != nil || len(metas) != 0 {
		t.Errorf("list %v, %v; want nothing", metas, err)
	}
	_, err := s.Create(t.Context(), "a", value("v"), map[string]string{"env": "prod"})
	must(t, err)
	wantValue(t, s, "a", "v")
	if tags := m.secrets["p/a"].tags; len(tags) != 3 {
		t.Errorf("tags %v, want those of others too", tags)
	}
	metas, err := s.List(t.Context(), nil)
	if err != nil || len(metas) != 1 || len(metas[0].Labels) != 1 {
		t.Errorf("list %+v, %v; want the labels only", metas, err)
	}
}

// TestCreateBetweenTheCallsOfDelete: if a Delete and a Create overlap, the later one counts.
func TestCreateBetweenTheCallsOfDelete(t *testing.T) {
	for _, at := range []string{"PutSecretValue", "UpdateSecretVersionStage", "DeleteSecret", "DescribeSecret"} {
		t.Run(at, func(t *testing.T) {
			m, url := newManager(t)
			s, other := openAt(t, url), openAt(t, url)
			_, err := s.Create(t.Context(), "a", value("old"), nil)
			must(t, err)
			done := false
			m.before = func(op string) {
				if op != at || done {
					return
				}
				done = true
				_, err = other.Create(t.Context(), "a", value("new"), nil)
			}
			must(t, s.Delete(t.Context(), "a"))
			m.before = nil
			switch {
			case !done:
				t.Fatal("never came there")
			case err == nil:
				wantValue(t, s, "a", "new")
			case errors.Is(err, secrets.ErrExists):
				if _, err := s.Get(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) {
					t.Errorf("get: %v, want ErrNotFound", err)
				}
			default:
				t.Error(err)
			}
		})
	}
}

func (m *manager) interceptBefore(op string, other func()) {
	done := false
	m.before = func(is string) {
		if is == op && !done {
			done = true
			other()
		}
	}
}

// A write to a secret that is deleted meanwhile must not look like an outage.
func TestDeletedBetweenTheCallsOfAWrite(t *testing.T) {
	for _, at := range []string{"PutSecretValue", "UpdateSecretVersionStage"} {
		t.Run(at, func(t *testing.T) {
			m, url := newManager(t)
			s, other := openAt(t, url), openAt(t, url)
			remove := func() { must(t, other.Delete(t.Context(), "a")) }
			_, err := s.Create(t.Context(), "a", value("old"), nil)
			must(t, err)
			m.interceptBefore(at, remove)
			if err := s.Delete(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) {
				t.Errorf("delete: %v, want ErrNotFound", err)
			}
			v, err := s.Create(t.Context(), "a", value("again"), nil)
			must(t, err)
			m.interceptBefore(at, remove)
			if _, err := s.Replace(t.Context(), "a", v, value("new")); !errors.Is(err, secrets.ErrNotFound) {
				t.Errorf("replace: %v, want ErrNotFound", err)
			}
		})
	}
}

// A write whose call to AWS fails must return that failure. The caller must not believe that another writer was first,
// or that the secret was deleted.
func TestFailedMoveIsReported(t *testing.T) {
	create := func(t *testing.T, s *Store, _ string) error {
		_, err := s.Create(t.Context(), "a", value("new"), nil)
		return err
	}
	replace := func(t *testing.T, s *Store, old string) error {
		_, err := s.Replace(t.Context(), "a", old, value("new"))
		return err
	}
	const move, describe = "UpdateSecretVersionStage", "DescribeSecret"
	for name, tt := range map[string]struct {
		isDeleted bool
		write     func(t *testing.T, s *Store, old string) error
		throttled []string
	}{
		"replace":                         {write: replace, throttled: []string{move}},
		"create after a deletion":         {isDeleted: true, write: create, throttled: []string{move}},
		"replace with an unknown outcome": {write: replace, throttled: []string{move, describe}},
	} {
		t.Run(name, func(t *testing.T) {
			m, url := newManager(t)
			s := openAt(t, url)
			old, err := s.Create(t.Context(), "a", value("old"), nil)
			must(t, err)
			if tt.isDeleted {
				must(t, s.Delete(t.Context(), "a"))
			}
			m.throttled = tt.throttled
			err = tt.write(t, s, old)
			if !errors.Is(err, secrets.ErrUnavailable) || errors.Is(err, secrets.ErrNotFound) ||
				errors.Is(err, secrets.ErrConflict) {
				t.Errorf("%v, want ErrUnavailable alone", err)
			}
			m.throttled = nil
			sec, err := s.Get(t.Context(), "a")
			if err == nil && string(sec.Value.Reveal()) == "new" {
				t.Error("the failed write is visible")
			}
		})
	}
}

// A Create must start again if its restored secret is deleted meanwhile.
func TestDeletedBetweenTheCallsOfACreator(t *testing.T) {
	for _, at := range []string{"PutSecretValue", "UpdateSecretVersionStage"} {
		t.Run(at, func(t *testing.T) {
			m, url := newManager(t)
			s := openAt(t, url)
			_, err := s.Create(t.Context(), "a", value("old"), nil)
			must(t, err)
			must(t, s.Delete(t.Context(), "a"))
			m.interceptBefore(at, func() { // in the console
				m.mu.Lock()
				defer m.mu.Unlock()
				m.secrets["p/a"].deleted = true
			})
			_, err = s.Create(t.Context(), "a", value("new"), nil)
			must(t, err)
			wantValue(t, s, "a", "new")
		})
	}
	t.Run("TagResource", func(t *testing.T) {
		m, url := newManager(t)
		s, other := openAt(t, url), openAt(t, url)
		_, err := s.Create(t.Context(), "a", value("old"), nil)
		must(t, err)
		must(t, s.Delete(t.Context(), "a"))
		m.interceptBefore("TagResource", func() { must(t, other.Delete(t.Context(), "a")) })
		_, err = s.Create(t.Context(), "a", value("new"), map[string]string{"a": "b"})
		must(t, err)
		if _, err := s.Get(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) || !m.secrets["p/a"].deleted {
			t.Errorf("get: %v, want ErrNotFound, and its deletion scheduled", err)
		}
	})
}

// TestDeletedValueStaysGone: a deleted value is never read again while its name is reused.
func TestDeletedValueStaysGone(t *testing.T) {
	m, url := newManager(t)
	s, other := openAt(t, url), openAt(t, url)
	_, err := s.Create(t.Context(), "a", value("old"), nil)
	must(t, err)
	must(t, s.Delete(t.Context(), "a"))
	m.before = func(op string) {
		if op == "GetSecretValue" {
			return
		}
		if sec, err := other.Get(t.Context(), "a"); err == nil && string(sec.Value.Reveal()) != "new" {
			t.Errorf("before %s the secret is %q", op, sec.Value.Reveal())
		}
	}
	_, err = s.Create(t.Context(), "a", value("new"), map[string]string{"a": "b"})
	must(t, err)
	wantValue(t, s, "a", "new")
}

// A Delete may die between scheduling the deletion and its check for a creator, who must cancel the deletion.
func TestDeleteThatDiedTooLate(t *testing.T) {
	m, url := newManager(t)
	f := mototest.NewFront(t, url)
	s, creator := openAt(t, f.URL), openAt(t, url)
	_, err := s.Create(t.Context(), "a", value("old"), nil)
	must(t, err)
	swapped, died, created := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var describes atomic.Int32
	m.before = func(op string) {
		switch op {
		case "DeleteSecret":
			f.Deny() // from the next call on: the deleting process is dead
			go func() {
				_, err := creator.Create(t.Context(), "a", value("new"), nil)
				created <- err
			}()
			<-swapped
		case "DescribeSecret":
			if describes.Add(1) == 3 { // after the call before the deletion, and the creator's first
				close(swapped)
				<-died
			}
		}
	}
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, secrets.ErrForbidden) {
		t.Errorf("delete: %v, want ErrForbidden", err)
	}
	close(died)
	must(t, <-created)
	wantValue(t, creator, "a", "new")
}

// A writer whose response was lost must recognize its success, even after another write.
func TestReplacedAtOnce(t *testing.T) {
	m, url := newManager(t)
	f := mototest.NewFront(t, url)
	s, other := openAt(t, f.URL), openAt(t, url)
	v1, err := s.Create(t.Context(), "a", value("one"), nil)
	must(t, err)
	f.Lose("UpdateSecretVersionStage", 1)
	moves := 0
	m.before = func(op string) {
		if op != "UpdateSecretVersionStage" {
			return
		}
		if moves++; moves != 2 { // the second call is a retry of the first, whose response was lost
			return
		}
		sec, err := other.Get(t.Context(), "a")
		if err == nil {
			_, err = other.Replace(t.Context(), "a", sec.Version, value("three"))
		}
		if err != nil {
			t.Error(err)
		}
	}
	v2, err := s.Replace(t.Context(), "a", v1, value("two"))
	must(t, err)
	m.before = nil
	if moves != 3 || v2 == v1 {
		t.Errorf("version %s after %d moves", v2, moves)
	}
	wantValue(t, s, "a", "three")
	if _, err := s.Replace(t.Context(), "a", v2, value("x")); !errors.Is(err, secrets.ErrConflict) {
		t.Errorf("replace of a version that is not current: %v, want ErrConflict", err)
	}
}

// TestDeleteThatDied: a later Delete completes one that died after the tombstone.
func TestDeleteThatDied(t *testing.T) {
	m, url := newManager(t)
	f := mototest.NewFront(t, url)
	s := openAt(t, f.URL)
	_, err := s.Create(t.Context(), "a", value("old"), nil)
	must(t, err)
	m.before = func(op string) {
		if op == "UpdateSecretVersionStage" {
			f.Deny() // from the next call on
		}
	}
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, secrets.ErrForbidden) {
		t.Errorf("delete: %v, want ErrForbidden", err)
	}
	f.Refuse("", 0)
	m.interceptBefore("GetSecretValue", f.Deny) // from the next call on
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, secrets.ErrForbidden) || errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("delete again, and die again: %v, want ErrForbidden alone", err)
	}
	m.before = nil
	f.Refuse("", 0)
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("get: %v, want ErrNotFound", err)
	}
	if metas, err := s.List(t.Context(), nil); err != nil || len(metas) != 0 {
		t.Errorf("list %v, %v; want nothing", metas, err)
	}
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("delete again: %v, want ErrNotFound", err)
	}
	if !m.secrets["p/a"].deleted {
		t.Error("the deletion is not scheduled")
	}
}

// TestErrorsDoNotQuoteTheRequest: some errors of AWS quote the request, and so the value.
func TestErrorsDoNotQuoteTheRequest(t *testing.T) {
	_, url := newManager(t)
	s := openAt(t, url)
	_, err := s.createNew(t.Context(), "a", value("s3cr3t"+strings.Repeat("x", 65536)), nil)
	if err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "ValidationException") {
		t.Errorf("create: %.200v, want the code of the error and not its words", err)
	}
}

func TestConfig(t *testing.T) {
	good := Config{AWS: mototest.Config("http://127.0.0.1:1"), Prefix: "a/"}
	for name, change := range map[string]func(*Config){
		"prefix": func(c *Config) { c.Prefix = "a b" },
		"days":   func(c *Config) { c.RecoveryDays = 3 },
		"region": func(c *Config) { c.AWS.Region = "" },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

// TestEnvironment: the standard environment of the SDK is sufficient, including a private CA.
func TestEnvironment(t *testing.T) {
	m, _ := newManager(t)
	srv := httptest.NewTLSServer(m)
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": srv.URL, "AWS_REGION": "eu-west-1", "AWS_CA_BUNDLE": ca,
		"AWS_ACCESS_KEY_ID":     "AKIAIOSFODNN7EXAMPLE",
		"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(k, v)
	}
	cfg, err := awsconfig.LoadDefaultConfig(t.Context())
	must(t, err)
	s, err := New(Config{AWS: cfg})
	must(t, err)
	_, err = s.Create(t.Context(), "a", value("v"), nil)
	must(t, err)
	wantValue(t, s, "a", "v")
}

func BenchmarkCold(b *testing.B) {
	f := mototest.Config(moto.URL)
	s, err := New(Config{AWS: f, Prefix: "bench/"})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Create(b.Context(), "a", value(strings.Repeat("k", 4096)), nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Get(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}
