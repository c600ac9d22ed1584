package backup_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/clusterpass/clusterpass/shared/backup"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// plainKey is a Key without a secret: scrypt is slow.
type plainKey struct{}

func (plainKey) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	return []*age.Stanza{{Type: "test", Body: fileKey}}, nil
}

func (plainKey) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if stanzas[0].Type != "test" || len(stanzas[0].Body) != 16 {
		return nil, age.ErrIncorrectIdentity
	}
	return stanzas[0].Body, nil
}

func newStores(t testing.TB) (*clustertest.Installation, *stores.Stores) {
	t.Helper()
	i := clustertest.NewInstallation(t)
	return i, &stores.Stores{Secrets: i.Secrets, Objects: i.Objects}
}

func encrypt(t testing.TB, key backup.Key, write func(io.Writer) error) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := backup.Encrypt(&file, key)
	if err == nil {
		err = errors.Join(write(w), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func save(t testing.TB, st *stores.Stores, key backup.Key, id string) []byte {
	t.Helper()
	return encrypt(t, key, func(out io.Writer) error {
		w, err := backup.NewWriter(out, backup.Header{ID: id})
		if err == nil {
			_, err = backup.Save(t.Context(), st, w, backup.Options{})
		}
		return err
	})
}

func verify(file []byte, key backup.Key) (*backup.Backup, error) {
	content, err := backup.Decrypt(bytes.NewReader(file), int64(len(file)), key)
	if err != nil {
		return nil, err
	}
	return backup.Verify(content)
}

func restore(t testing.TB, file []byte, st *stores.Stores) (*backup.Result, error) {
	t.Helper()
	b, err := verify(file, plainKey{})
	if err != nil {
		t.Fatal(err)
	}
	return b.Restore(t.Context(), st, backup.Options{})
}

// contentOf returns all objects and secrets by name.
func contentOf(t testing.TB, st *stores.Stores) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, prefix := range append(slices.Clone(backup.Prefixes), "restore/", "audit/") {
		page, err := st.Objects.List(t.Context(), prefix, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			out[o.Key] = string(o.Value)
		}
	}
	metas, err := st.Secrets.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metas {
		s, err := st.Secrets.Get(t.Context(), m.Name)
		if err != nil {
			t.Fatal(err)
		}
		out["secret "+m.Name] = fmt.Sprint(m.Labels) + string(s.Value.Reveal())
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const expired = `{"metadata":{"uid":"1"},"status":{"expirationTimestamp":"2020-01-01T00:00:00Z"}}`

// fill stores something of each kind, with values that are no JSON and no text.
func fill(t testing.TB, i *clustertest.Installation) {
	t.Helper()
	i.Create("installation/id", "abcdefgh")
	i.Create("keys/passes", `{"keys":[]}`)
	i.Create("keys/tunnel", `{"keys":[]}`)
	i.Create("audit/override", `{}`)
	i.Create("revocations/4b1f", "\x00\xff binary \n")
	i.Create("clusterroles/system:a b/ü", "{ }")
	i.Create("passes/old", expired)
	i.Create("passes/new", strings.Replace(expired, "2020", "2220", 1))
	i.AddCluster("lab", nil)
	for name, labels := range map[string]map[string]string{
		"clusters/lab": {"env": "prod", "clusterpass.io/x": ""}, "keys/passes": nil, "keys/tunnel": nil, "audit/token": nil,
	} {
		_, err := i.Secrets.Create(t.Context(), name, secrets.NewValue([]byte("\xff"+name+"\n")), labels)
		must(t, err)
	}
}

// TestRestoredStoreIsEqual fails if a move changes a byte, or moves what belongs to the old place.
func TestRestoredStoreIsEqual(t *testing.T) {
	i, from := newStores(t)
	fill(t, i)
	want := contentOf(t, from)
	for _, key := range []string{"keys/tunnel", "audit/override", "passes/old", "secret keys/tunnel"} {
		if _, ok := want[key]; !ok {
			t.Fatalf("the source lacks %s", key)
		}
		delete(want, key)
	}
	file := save(t, from, plainKey{}, "1")
	_, to := newStores(t)
	must(t, stores.CreateDefaultRegistry(t.Context(), to.Objects)) // as clusterpass init
	_, err := to.Objects.Create(t.Context(), "keys/passes", []byte("the new place's"))
	must(t, err)
	res, err := restore(t, file, to)
	must(t, err)
	if got := contentOf(t, to); !maps.Equal(got, want) {
		t.Errorf("restored:\n%q\nwant:\n%q", got, want)
	}
	if want := (backup.Counts{Objects: 6, Secrets: 3}); res.Counts != want || res.Resumed {
		t.Errorf("%+v, want %+v", res, want)
	}
	if bytes.Contains(file, []byte("clusters/lab")) {
		t.Error("the file is not encrypted")
	}
}

// busyObjects makes writes while a store is listed.
type busyObjects struct {
	objects.Store
	onList func(prefix string)
}

func (s *busyObjects) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	page, err := s.Store.List(ctx, prefix, limit, cont)
	s.onList(prefix)
	return page, err
}

// TestBackupIsOfOneRevision: a role and a binding of different moments could grant a right that never existed. A
// cluster that was registered meanwhile must not lack its secret.
func TestBackupIsOfOneRevision(t *testing.T) {
	i, from := newStores(t)
	for n := range 250 { // several pages
		i.Create(fmt.Sprintf("clusterroles/r%03d", n), "{}")
	}
	from.Objects = &busyObjects{i.Objects, func(prefix string) {
		if prefix != "clusterrolebindings/" {
			return
		}
		i.Delete("clusterroles/r007")
		i.Create("clusterroles/late", "{}")
		i.Create("clusterrolebindings/late", "{}")
		i.AddCluster("late", []byte("kubeconfig"))
		i.Create("passes/brief", "{}")
		i.Delete("passes/brief")
	}}
	file := save(t, from, plainKey{}, "1")
	_, to := newStores(t)
	_, err := restore(t, file, to)
	must(t, err)
	got := contentOf(t, to)
	want := contentOf(t, &stores.Stores{Objects: i.Objects, Secrets: i.Secrets})
	if !maps.Equal(got, want) || len(got) != 253 {
		t.Errorf("%d records, want %d: %q", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
}

// lateObjects covers the writes during a list only in its second answer, like a hub whose writers are slow.
type lateObjects struct {
	objects.Store
	calls int
}

func (s *lateObjects) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	if s.calls++; s.calls == 1 {
		return nil, from, nil
	}
	return s.Store.Changes(ctx, from, limit)
}

// TestBackupWaitsForIncompleteWrite: the list of bindings has a write that the list of roles was too early for.
func TestBackupWaitsForIncompleteWrite(t *testing.T) {
	i, from := newStores(t)
	i.Create("clusterroles/old", "{}")
	from.Objects = &lateObjects{Store: &busyObjects{i.Objects, func(prefix string) {
		if prefix == "clusterroles/" {
			i.Create("clusterroles/late", "{}")
			i.Create("clusterrolebindings/late", "{}")
		}
	}}}
	file := save(t, from, plainKey{}, "1")
	_, to := newStores(t)
	_, err := restore(t, file, to)
	must(t, err)
	want := contentOf(t, &stores.Stores{Objects: i.Objects, Secrets: i.Secrets})
	if got := contentOf(t, to); !maps.Equal(got, want) {
		t.Errorf("restored:\n%q\nwant:\n%q", got, want)
	}
}

// failingObjects fails after some writes.
type failingObjects struct {
	objects.Store
	left int
}

func (s *failingObjects) Create(ctx context.Context, key string, value []byte) (objects.Object, error) {
	if s.left--; s.left < 0 {
		return objects.Object{}, objects.Unavailable(errors.New("the network is down"), time.Second)
	}
	return s.Store.Create(ctx, key, value)
}

// TestInterruptedRestoreContinues: without it, an operator would have to empty the stores by hand.
func TestInterruptedRestoreContinues(t *testing.T) {
	i, from := newStores(t)
	fill(t, i)
	file, other := save(t, from, plainKey{}, "1"), save(t, from, plainKey{}, "2")
	_, complete := newStores(t)
	_, err := restore(t, file, complete)
	must(t, err)
	for writes := range 7 {
		target, to := newStores(t)
		to.Objects = &failingObjects{target.Objects, writes}
		if _, err := restore(t, file, to); !errors.Is(err, objects.ErrUnavailable) {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		to.Objects = target.Objects
		if writes > 0 {
			if _, err := restore(t, other, to); err == nil || !strings.Contains(err.Error(), "a part of another backup") {
				t.Errorf("after %d writes, another backup: %v", writes, err)
			}
			w, err := backup.NewWriter(io.Discard, backup.Header{ID: "3"})
			must(t, err)
			if _, err := backup.Save(t.Context(), to, w, backup.Options{}); err == nil ||
				!strings.Contains(err.Error(), "incomplete") {
				t.Errorf("after %d writes, a backup of it: %v", writes, err)
			}
		}
		res, err := restore(t, file, to)
		if err != nil || res.Resumed != (writes > 0) {
			t.Errorf("after %d writes, again: %+v, %v", writes, res, err)
		}
		if got, want := contentOf(t, to), contentOf(t, complete); !maps.Equal(got, want) {
			t.Errorf("after %d writes: %q, want %q", writes, got, want)
		}
	}
}

// TestRestoreAfterGatewayStarted: replicas may start before the restore, and then write keys and CAs of their own. The
// restored ones must replace them, or clients would not trust the gateway.
func TestRestoreAfterGatewayStarted(t *testing.T) {
	start := func(i *clustertest.Installation) {
		t.Helper()
		issuer := passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, Now: time.Now}
		must(t, issuer.PublishAll(t.Context()))
		must(t, stores.CreateDefaultRegistry(t.Context(), i.Objects))
		_, err := passes.EnsureServerCA(t.Context(), i.Secrets)
		must(t, err)
		ca, err := pki.NewCA("client-ca")
		must(t, err)
		must(t, passes.StoreCA(t.Context(), i.Secrets, ca))
	}
	i, from := newStores(t)
	start(i)
	i.AddCluster("lab", nil)
	want := contentOf(t, from)
	target, to := newStores(t)
	start(target)
	_, err := restore(t, save(t, from, plainKey{}, "1"), to)
	must(t, err)
	got := contentOf(t, to)
	for name := range want {
		if strings.HasSuffix(name, passes.TunnelKeys) {
			delete(want, name) // each place has its own
			delete(got, name)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("restored:\n%q\nwant:\n%q", got, want)
	}
}

// TestRestoreRefusesStoreInUse fails if a restore mixes two installations.
func TestRestoreRefusesStoreInUse(t *testing.T) {
	i, from := newStores(t)
	fill(t, i)
	file := save(t, from, plainKey{}, "1")
	for name, write := range map[string]func(*clustertest.Installation) error{
		"a cluster":  func(i *clustertest.Installation) error { i.AddCluster("a", nil); return nil },
		"a role":     func(i *clustertest.Installation) error { i.Create("clusterroles/a", "{}"); return nil },
		"a registry": func(i *clustertest.Installation) error { i.AddRegistry("a", "{}"); return nil },
		"a secret": func(i *clustertest.Installation) error {
			_, err := i.Secrets.Create(t.Context(), "clusters/a", secrets.NewValue([]byte("x")), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			target, to := newStores(t)
			must(t, write(target))
			before := contentOf(t, to)
			if _, err := restore(t, file, to); err == nil || !strings.Contains(err.Error(), "the store is not empty") ||
				!strings.Contains(err.Error(), "--store") {
				t.Errorf("%v", err)
			}
			if after := contentOf(t, to); !maps.Equal(before, after) {
				t.Errorf("%q was written", after)
			}
		})
	}
}

// TestFilesThatAreRefused fails if a file that is not what was saved passes, or if the error names no remedy.
func TestFilesThatAreRefused(t *testing.T) {
	i, from := newStores(t)
	fill(t, i)
	passphrase := func(text string) backup.Key {
		t.Helper()
		key, err := backup.Passphrase(secrets.NewValue([]byte(text)))
		must(t, err)
		return key
	}
	right := passphrase("correct horse battery")
	withPassphrase, plain := save(t, from, right, "1"), save(t, from, plainKey{}, "1")
	lines := func(text string) []byte {
		return encrypt(t, plainKey{}, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	}
	const header = `{"header":{"format":"clusterpass-backup","version":1,"id":"1"}}` + "\n"
	if _, err := verify(withPassphrase, right); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file []byte
		key  backup.Key
		want string
	}{
		"wrong passphrase":    {withPassphrase, passphrase("wrong"), "the passphrase is wrong"},
		"no passphrase":       {withPassphrase, plainKey{}, "encrypted to a passphrase"},
		"needless passphrase": {plain, right, "--kms-key"},
		"empty":               {nil, plainKey{}, "no backup"},
		"other file":          {[]byte("PK\x03\x04 and more"), plainKey{}, "no backup"},
		"long other file":     {bytes.Repeat([]byte("age-encryption.org/v1\n"), 10_000), plainKey{}, "no backup"},
		"later encryption":    {bytes.Replace(plain, []byte("v1"), []byte("v2"), 1), plainKey{}, "no backup"},
		"later version": {lines(strings.Replace(header, `"version":1`, `"version":2,"program":"v9"`, 1)), plainKey{},
			`version 2, and this program reads version 1; use the version of clusterpass that made it: "v9"`},
		"no header":      {lines(`{"end":{"objects":0,"secrets":0}}` + "\n"), plainKey{}, "not the header"},
		"two headers":    {lines(header + header), plainKey{}, "two headers"},
		"no end":         {lines(header), plainKey{}, "its end is missing"},
		"more after end": {lines(header + `{"end":{"objects":0,"secrets":0}}` + "\n{}"), plainKey{}, "after its end"},
		"lost record":    {lines(header + `{"end":{"objects":1,"secrets":0}}` + "\n"), plainKey{}, "should have 1 and 0"},
		"unknown kind":   {lines(header + `{"object":{"key":"dragons/a","value":""}}` + "\n"), plainKey{}, "does not know"},
		"invalid key":    {lines(header + `{"object":{"key":"clusters/../a","value":""}}` + "\n"), plainKey{}, "segment"},
		"invalid secret": {lines(header + `{"secret":{"name":"a","value":""}}` + "\n"), plainKey{}, "value of 0 bytes"},
		"unknown field":  {lines(header + `{"dragon":1}` + "\n"), plainKey{}, "cannot be decoded"},
		"long record":    {lines(header + strings.Repeat(" ", 1<<20) + "\n"), plainKey{}, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := verify(tt.file, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	for cut := range plain {
		if _, err := verify(plain[:cut], plainKey{}); err == nil {
			t.Fatalf("cut after %d of %d bytes: no error", cut, len(plain))
		}
		changed := bytes.Clone(plain)
		changed[cut] ^= 1
		if _, err := verify(changed, plainKey{}); err == nil {
			t.Fatalf("byte %d of %d changed: no error", cut, len(plain))
		}
	}
}

// TestEmptyStoreIsNotSaved: a backup of a mistyped path must not look like one of the installation.
func TestEmptyStoreIsNotSaved(t *testing.T) {
	_, st := newStores(t)
	w, err := backup.NewWriter(io.Discard, backup.Header{ID: "1"})
	must(t, err)
	if _, err := backup.Save(t.Context(), st, w, backup.Options{}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Error(err)
	}
}

// TestNotes fails if an operator is not warned of what does not work in the new place.
func TestNotes(t *testing.T) {
	i, st := newStores(t)
	i.Create("keys/passes", `{"signer":"arn:aws:kms:eu-west-1:111122223333:key/k","keys":[]}`)
	i.Create("clusters/far", `{"spec":{"syncMode":"Pull","proxyURL":"https://bridge.example.com:8444"}}`)
	i.Create("passes/old", expired)
	i.AddCluster("eks", clustertest.Kubeconfig("https://eks.example.com", i.CA.PEM(), `{"exec":{"command":"aws",`+
		`"apiVersion":"client.authentication.k8s.io/v1beta1","args":["eks","get-token","--cluster-name","c"],`+
		`"env":[{"name":"AWS_REGION","value":"eu-west-1"}]}}`))
	b, err := verify(save(t, st, plainKey{}, "1"), plainKey{})
	must(t, err)
	text := strings.Join(b.Notes.Text(), "\n")
	for _, want := range []string{
		"key/k", "https://bridge.example.com:8444: far", "join --pull --replace NAME", "clusters/eks",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the notes:\n%s", want, text)
		}
	}
}

// FuzzRead fails if a backup of an attacker crashes the reader, or passes it with what a store refuses.
func FuzzRead(f *testing.F) {
	i, st := newStores(f)
	fill(f, i)
	var content bytes.Buffer
	w, err := backup.NewWriter(&content, backup.Header{ID: "1"})
	must(f, err)
	_, err = backup.Save(f.Context(), st, w, backup.Options{})
	must(f, err)
	f.Add(content.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		var w *backup.Writer
		h, counts, err := backup.Read(bytes.NewReader(b), func(r backup.Record) error {
			if w == nil {
				var err error
				if w, err = backup.NewWriter(&out, backup.Header{ID: "1"}); err != nil {
					return err
				}
			}
			switch {
			case r.Object != nil:
				return errors.Join(objects.ValidKey(r.Object.Key), w.PutObject(r.Object.Key, r.Object.Value))
			case r.Secret != nil:
				return errors.Join(secrets.ValidName(r.Secret.Name), w.PutSecret(r.Secret.Name, r.Secret.Labels, r.Secret.Value))
			}
			return errors.Join(objects.ValidKey(r.Deleted), w.DeleteObject(r.Deleted))
		})
		if err != nil || w == nil {
			return
		}
		must(t, w.Close())
		_, again, err := backup.Read(&out, func(backup.Record) error { return nil })
		if err != nil || again != counts || h.ID == "" {
			t.Fatalf("%+v became %+v, %v", counts, again, err)
		}
	})
}

// FuzzDecrypt fails if a file crashes the decryption.
func FuzzDecrypt(f *testing.F) {
	good := encrypt(f, plainKey{}, func(w io.Writer) error { _, err := io.WriteString(w, "content"); return err })
	f.Add(good)
	fileKey := base64.RawStdEncoding.EncodeToString(make([]byte, 16))
	f.Add([]byte("age-encryption.org/v1\n-> test\n" + fileKey + "\n--- x\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = verify(b, plainKey{}) })
}
