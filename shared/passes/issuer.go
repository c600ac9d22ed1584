package passes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Issuer issues and revokes passes and agents' credentials, and manages the keys that sign them. It does not check the
// rights of its caller. It is safe for concurrent use.
type Issuer struct {
	Objects objects.Store
	Secrets secrets.Store
	URL     string           // the gateway's URL: issuer of all tokens, and audience of passes
	CA      *pki.CA          // signs certificates, or nil if this Issuer creates no certificates
	Signer  Signer           // signs tokens of passes, or nil for the keys of the secret store
	Now     func() time.Time // nil means time.Now
}

// Issued is a new pass with its credential. The credential is not stored.
type Issued struct {
	Pass        *v1alpha1.Pass
	Token       secrets.Value // set for the form token
	Certificate []byte        // in PEM, set for the form certificate
	Key         secrets.Value // in PEM, the private key of Certificate
}

// verbs are the valid values of spec.verbs. The verb get includes list and watch. A request that upgrades, such as a
// watch by websocket, needs create. access.Verb has the details.
var verbs = []string{v1alpha1.Any, "get", "create", "update", "patch", "delete"}

// FieldError is an invalid field of a pass.
type FieldError struct {
	Field   string
	Value   string // a quoted string, a duration, or "" if a required list is empty
	Problem string
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return e.Field + ": " + e.Problem
	}
	return e.Field + " " + e.Value + ": " + e.Problem
}

func fieldError(field string, value any, format string, args ...any) error {
	e := &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
	switch v := value.(type) {
	case nil:
	case time.Duration:
		e.Value = v.String()
	default:
		e.Value = fmt.Sprintf("%q", v)
	}
	return e
}

// SetDefaults sets TTL and Form if they are missing. The default TTL is at most maxTTL.
func SetDefaults(s *v1alpha1.PassSpec, maxTTL time.Duration) {
	if s.TTL.Duration == 0 {
		s.TTL.Duration = min(DefaultTTL, maxTTL)
	}
	if s.Form == "" {
		s.Form = v1alpha1.Token
	}
}

// Validate returns a *FieldError if a field of the pass is invalid.
func Validate(p *v1alpha1.Pass, maxTTL time.Duration) error {
	s := &p.Spec
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
		return fieldError("metadata.name", p.Name, "%s", problems[0])
	}
	if err := validateName("spec.user", s.User); err != nil {
		return err
	}
	for _, group := range s.Groups {
		if err := validateName("spec.groups", group); err != nil {
			return err
		}
	}
	if len(s.Clusters) == 0 {
		return fieldError("spec.clusters", nil,
			"name the clusters that the pass is for, or * for all that its user may reach")
	}
	for _, c := range s.Clusters {
		if c != v1alpha1.Any && len(validation.IsDNS1123Label(c)) > 0 {
			return fieldError("spec.clusters", c, "want a cluster's name, or *")
		}
	}
	if len(s.Verbs) == 0 {
		return fieldError("spec.verbs", nil, "name the verbs that the pass is for, or * for all that its user may use")
	}
	for _, v := range s.Verbs {
		if !slices.Contains(verbs, v) {
			return fieldError("spec.verbs", v, "want one of %s", strings.Join(verbs, ", "))
		}
	}
	switch s.Form {
	case v1alpha1.Token:
	case v1alpha1.Certificate:
		maxTTL = min(maxTTL, MaxCertificateTTL)
	default:
		return fieldError("spec.form", s.Form, "want %s or %s", v1alpha1.Token, v1alpha1.Certificate)
	}
	if s.TTL.Duration < MinTTL || s.TTL.Duration > maxTTL {
		return fieldError("spec.ttl", s.TTL.Duration, "want %s to %s, the longest that this gateway allows for a %s", MinTTL,
			maxTTL, s.Form)
	}
	return nil
}

func validateName(field, name string) error {
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	if name == "" || strings.TrimSpace(name) != name || strings.ContainsFunc(name, isControl) {
		return fieldError(field, name, "want a non-empty name without control characters, and without spaces at its ends")
	}
	return nil
}

// Create stores a copy of p with defaults, a uid and an expiry, and returns it with its credential. The error wraps
// objects.ErrExists if there is a pass with that name.
func (i *Issuer) Create(ctx context.Context, p *v1alpha1.Pass) (*Issued, error) {
	p = p.DeepCopy()
	SetDefaults(&p.Spec, MaxTTL)
	if err := Validate(p, MaxTTL); err != nil {
		return nil, err
	}
	now := i.now().Truncate(time.Second)
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.PassKind}
	p.UID, p.CreationTimestamp = types.UID(uuid.NewString()), metav1.NewTime(now)
	p.Status.ExpirationTimestamp = metav1.NewTime(now.Add(p.Spec.TTL.Duration))
	out, err := i.Mint(ctx, p)
	if err != nil {
		return nil, err
	}
	// The object is stored last. Without it, the credential is not valid.
	value, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if _, err := i.Objects.Create(ctx, v1alpha1.PassPrefix+p.Name, value); err != nil {
		return nil, err
	}
	return out, nil
}

// Mint creates the credential of p. The credential becomes valid when p is stored. The caller must have set the uid,
// the creation time and the expiry of p.
func (i *Issuer) Mint(ctx context.Context, p *v1alpha1.Pass) (*Issued, error) {
	out := &Issued{Pass: p}
	if p.Spec.Form == v1alpha1.Certificate {
		return out, i.mintCertificate(out)
	}
	return out, i.mintToken(ctx, out)
}

func (i *Issuer) mintCertificate(out *Issued) error {
	if i.CA == nil {
		return errors.New("create the pass's certificate: this program has no key of the gateway's CA; use form token")
	}
	p := out.Pass
	cert, key, err := i.CA.ClientUntil(p.Spec.User, p.Spec.Groups, p.Status.ExpirationTimestamp.Time, certificateURI(p))
	out.Certificate, out.Key = cert, secrets.NewValue(key)
	return err
}

func certificateURI(p *v1alpha1.Pass) *url.URL {
	return &url.URL{Scheme: "clusterpass", Host: "pass", Path: "/" + p.Name + "/" + string(p.UID)}
}

// claims are the private claims of a pass's token. Groups, clusters and verbs are only in the pass's object.
type claims struct {
	Pass string `json:"clusterpass.io/pass"` // the name of the pass. The claim jti is the uid of the pass.
}

func (i *Issuer) mintToken(ctx context.Context, out *Issued) (err error) {
	p := out.Pass
	out.Token, err = i.signToken(ctx, passToken, jwt.Claims{
		Audience: jwt.Audience{i.URL}, Subject: p.Spec.User, ID: string(p.UID),
		IssuedAt: jwt.NewNumericDate(p.CreationTimestamp.Time), Expiry: jwt.NewNumericDate(p.Status.ExpirationTimestamp.Time),
	}, claims{Pass: p.Name})
	return err
}

// List returns all passes, sorted by name, including expired ones that Prune has not deleted. It calls onInvalid for
// each pass that cannot be decoded. Such a pass authenticates no request. Revoke can delete it.
func (i *Issuer) List(ctx context.Context, onInvalid func(name string, err error)) ([]v1alpha1.Pass, error) {
	return list(ctx, i.Objects, v1alpha1.PassPrefix, onInvalid, func(p *v1alpha1.Pass, name string) { p.Name = name })
}

// list decodes all objects with a prefix, and calls onInvalid for those that cannot be decoded.
func list[T any](
	ctx context.Context, store objects.Lister, prefix string, onInvalid func(name string, err error),
	setName func(obj *T, name string),
) ([]T, error) {
	page, err := store.List(ctx, prefix, 0, "")
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(page.Objects))
	for _, o := range page.Objects {
		var obj T
		name := strings.TrimPrefix(o.Key, prefix)
		if err := json.Unmarshal(o.Value, &obj); err != nil {
			onInvalid(name, err)
			continue
		}
		setName(&obj, name)
		out = append(out, obj)
	}
	return out, nil
}

// Revoke deletes a pass, or returns objects.ErrNotFound. Every program of the gateway refuses the pass within MaxAge.
func (i *Issuer) Revoke(ctx context.Context, name string) error {
	return i.remove(ctx, v1alpha1.PassPrefix+name)
}

// remove deletes an object, and retries if the object is updated meanwhile. If the object was replaced by one with
// another uid, remove keeps the new one, and the error wraps objects.ErrConflict.
func (i *Issuer) remove(ctx context.Context, key string) error {
	var first string
	for n := range attempts {
		o, err := i.Objects.Get(ctx, key)
		if err != nil {
			return err
		}
		uid := uidOf(o.Value)
		if n == 0 {
			first = uid
		}
		if uid != first {
			break
		}
		if _, err := i.Objects.Delete(ctx, key, o.Revision); !errors.Is(err, objects.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("delete %s: %w", key, objects.ErrConflict)
}

// uidOf returns the metadata.uid of a pass, or the uid of an enrolment. It returns "" for an object that cannot be
// decoded, so that remove can still delete it.
func uidOf(value []byte) string {
	var o struct {
		UID      string `json:"uid"`
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(value, &o)
	return o.UID + o.Metadata.UID
}

const (
	maintenanceInterval = time.Hour
	pruneAfter          = 24 * time.Hour
	prunePage           = 100
)

// Prune deletes passes that expired more than 24 hours ago.
func (i *Issuer) Prune(ctx context.Context) error {
	var errs []error
	for cont := ""; ; {
		page, err := i.Objects.List(ctx, v1alpha1.PassPrefix, prunePage, cont)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, o := range page.Objects {
			var p v1alpha1.Pass
			if json.Unmarshal(o.Value, &p) != nil || i.now().Sub(p.Status.ExpirationTimestamp.Time) <= pruneAfter {
				continue
			}
			// A later pass with the same name has another revision, and stays.
			if _, err := i.Objects.Delete(ctx, o.Key, o.Revision); err != nil && !errors.Is(err, objects.ErrNotFound) &&
				!errors.Is(err, objects.ErrConflict) {
				errs = append(errs, fmt.Errorf("delete %s: %w", o.Key, err))
			}
		}
		if cont = page.Continue; cont == "" {
			return errors.Join(errs...)
		}
	}
}

// Maintain calls PublishAll and Prune immediately and then every hour, until ctx ends. It calls onError for each error.
func (i *Issuer) Maintain(ctx context.Context, onError func(error)) {
	for {
		for _, do := range []func(context.Context) error{i.PublishAll, i.Prune} {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				onError(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(maintenanceInterval):
		}
	}
}

func (i *Issuer) now() time.Time {
	if i.Now == nil {
		return time.Now()
	}
	return i.Now()
}
