// Package rotate is the function with which AWS Secrets Manager rotates a member cluster's credential. That is the
// token of a ServiceAccount in the kubeconfig of the cluster's secret.
//
// Secrets Manager calls four steps with the ID of a version:
//   - createSecret requests a new token from the member, for the ServiceAccount of the present token. It stores the
//     token as that version, with the stage AWSPENDING.
//   - setSecret does nothing, because a member knows its tokens.
//   - testSecret calls the member with the new token.
//   - finishSecret makes the version AWSCURRENT. The previous version becomes AWSPREVIOUS. Its token stays valid until
//     it expires, so that running requests continue.
//
// Invariants:
//   - Every step may run twice, concurrently, or again after a crash.
//   - AWSCURRENT moves only to a version that was made from the present one. So a new registration of the cluster is
//     never overwritten.
//   - A member's response is stored only if it can be read back as a kubeconfig for the same cluster.
package rotate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/stores"
)

const stepTimeout = time.Minute

// Config is the function's configuration.
type Config struct {
	Store         stores.Address `envconfig:"CLUSTERPASS_STORE" required:"true" desc:"Location of the stores for credentials and objects: dir:PATH or aws:PREFIX." example:"aws:clusterpass"`
	TokenLifetime time.Duration  `envconfig:"CLUSTERPASS_TOKEN_LIFETIME" default:"48h" desc:"Requested lifetime of a new token, at least twice the interval of rotations. A member may issue a shorter one (EKS: 24h)." example:"168h"`
	URL           config.URL     `envconfig:"CLUSTERPASS_URL" desc:"URL of the gateway for clients. Required for private clusters." example:"https://gateway.example.com"`
	LogLevel      slog.Level     `envconfig:"CLUSTERPASS_LOG_LEVEL" default:"INFO" desc:"Minimum log level: DEBUG, INFO, WARN or ERROR." example:"WARN"`
}

// Validate implements config.Validator.
func (c *Config) Validate() error {
	if c.Store.Kind != "aws" {
		return &config.Error{
			Variable: "CLUSTERPASS_STORE", Problem: "only AWS Secrets Manager rotates", Example: "aws:clusterpass",
		}
	}
	if c.TokenLifetime < minLifetime {
		return &config.Error{
			Variable: "CLUSTERPASS_TOKEN_LIFETIME", Problem: "want 10m or more, as Kubernetes does", Example: "48h",
		}
	}
	return nil
}

// Open returns a Rotator for the function's configuration and the SDK's standard environment.
func (c *Config) Open(ctx context.Context) (*Rotator, error) {
	sdk, err := awsclient.Load(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := assembly.Open(ctx, assembly.Env{
		Shared: assembly.Shared{LogLevel: c.LogLevel}, Store: c.Store, URL: c.URL,
	}, nil)
	if err != nil {
		return nil, err
	}
	var private cluster.Tunnel // nil without the URL of the gateway
	if c.URL != "" {
		private = parts.NewTunnel()
	}
	return &Rotator{
		Manager: secretsmanager.NewFromConfig(awsclient.Configure(sdk)), Prefix: c.Store.Where + "/",
		Objects: parts.Stores.Objects, Policy: parts.DialPolicy(private), Lifetime: c.TokenLifetime, Log: parts.Log,
	}, nil
}

// Rotator is the function. It is stateless and safe for concurrent use.
type Rotator struct {
	Manager  Manager
	Prefix   string // prefix of the secrets' names in AWS; the store's names follow
	Objects  objects.Store
	Policy   cluster.DialPolicy
	Lifetime time.Duration // requested lifetime of new tokens; the member may grant less
	Log      *slog.Logger
}

// Event is the request of Secrets Manager.
type Event struct {
	Step               string
	SecretID           string `json:"SecretId"` // ARN or name
	ClientRequestToken string // ID of the version to create
}

// rotation is one step for one secret.
type rotation struct {
	*Rotator
	secret *secret
	id     string // ID of the version to create
}

// Handle runs one step. Secrets Manager retries after an error, whose text contains no secret.
func (r *Rotator) Handle(ctx context.Context, ev Event) error {
	steps := map[string]func(*rotation, context.Context) error{
		"createSecret": (*rotation).create, "setSecret": (*rotation).set, "testSecret": (*rotation).test,
		"finishSecret": (*rotation).finish,
	}
	step := steps[ev.Step]
	if step == nil {
		return fmt.Errorf(
			"step %.64q: want createSecret, setSecret, testSecret or finishSecret; only Secrets Manager calls this "+
				"function", ev.Step)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	sec, err := r.describe(ctx, ev.SecretID)
	if err != nil {
		return err
	}
	rot := &rotation{Rotator: r, secret: sec, id: ev.ClientRequestToken}
	if err := rot.run(ctx, step); err != nil {
		err = fmt.Errorf("%s of secret %s: %w", ev.Step, sec.name, err)
		r.Log.ErrorContext(ctx, "rotation failed", "step", ev.Step, "secret", sec.name, "version", rot.id, "error", err)
		return err
	}
	r.Log.InfoContext(ctx, "rotation step done", "step", ev.Step, "secret", sec.name, "version", rot.id)
	return nil
}

func (r *rotation) run(ctx context.Context, step func(*rotation, context.Context) error) error {
	switch stages := r.secret.stages[r.id]; {
	case stages == nil:
		return fmt.Errorf("it has no version %.64q", r.id)
	case slices.Contains(stages, current):
		return r.clear(ctx) // finished before
	case !slices.Contains(stages, pending):
		return fmt.Errorf("version %s is not %s", r.id, pending)
	}
	err := step(r, ctx)
	if err == nil {
		return nil
	}
	// Another call of the same step may have been faster, or a response was lost.
	now, derr := r.describe(ctx, r.secret.id)
	if derr == nil && slices.Contains(now.stages[r.id], current) {
		r.secret = now
		return r.clear(ctx)
	}
	return withRead(err, derr)
}

// withRead adds to err why the secret could not be read after it, if it could not: what failed may have been done.
func withRead(err, read error) error {
	if read == nil {
		return err
	}
	return fmt.Errorf("%w; it may have been done, which cannot be read: %w", err, read)
}

// create requests a token and stores it as the pending version, unless that was done before.
func (r *rotation) create(ctx context.Context) error {
	switch made, err := r.get(ctx, r.id, pending); {
	case err == nil:
		return r.inTime(ctx, made)
	case !errors.Is(err, errNoValue):
		return err
	}
	old, err := r.get(ctx, "", current)
	if err != nil {
		return err
	}
	m, err := r.member(ctx, old)
	if err != nil {
		return err
	}
	defer m.Close()
	if m.Credential.Token == "" {
		return errors.New(
			"its kubeconfig contains no token; only tokens of service accounts are rotated, so switch rotation off")
	}
	token, err := mint(ctx, m, r.Lifetime)
	if err != nil {
		return err
	}
	value, err := renew(old.value.Reveal(), token.bearer, origin{Version: old.id, Account: token.account})
	if err != nil {
		return err
	}
	made := &version{value: value, binary: old.binary}
	if _, err := cluster.Validate(m.Cluster, value.Reveal(), nil, time.Now()); err != nil {
		return fmt.Errorf("the member gives a token that cannot be used: %w", err)
	}
	r.Log.InfoContext(ctx, "token minted", "secret", r.secret.name, "account", token.account, "expires", token.expires)
	if next := r.secret.next; next.After(token.expires) {
		r.Log.WarnContext(ctx, "the token ends before the next rotation: rotate more often, or raise the member's limit",
			"secret", r.secret.name, "expires", token.expires, "next", next)
	}
	return r.put(ctx, made)
}

func (r *rotation) set(context.Context) error { return nil }

// test calls the member with the pending version.
func (r *rotation) test(ctx context.Context) error {
	made, err := r.get(ctx, r.id, pending)
	if err != nil {
		return err
	}
	m, err := r.member(ctx, made)
	if err != nil {
		return err
	}
	defer m.Close()
	account, err := m.WhoAmI(ctx)
	if err != nil {
		return err
	}
	if o := originOf(made.value); o.Account != "" && o.Account != account {
		return fmt.Errorf("the new token is of %q, the one before was of %q", account, o.Account)
	}
	return nil
}

// finish makes the pending version the current one.
func (r *rotation) finish(ctx context.Context) error {
	made, err := r.get(ctx, r.id, pending)
	if err != nil {
		return err
	}
	if err := r.inTime(ctx, made); err != nil {
		return err
	}
	if err := r.promote(ctx, originOf(made.value).Version); err != nil {
		return err
	}
	return r.clear(ctx)
}

// inTime fails unless made comes from the version that is current. One that does not is given up, so that Secrets
// Manager can begin anew: it begins none while a version is pending.
func (r *rotation) inTime(ctx context.Context, made *version) error {
	from := originOf(made.value).Version
	if from != "" && from == r.secret.currentID() {
		return nil
	}
	if err := r.clear(ctx); err != nil {
		return err
	}
	return errors.New(
		"the secret was replaced during its rotation; the replacement stays, and the next rotation starts from it")
}
