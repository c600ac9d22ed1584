// Package awssecrets keeps secrets in AWS Secrets Manager.
//
// The secret clusters/member1 is the AWS secret PREFIXclusters/member1: its value as it is (text where it is
// UTF-8, so that people can read it in the console), its labels as tags. A secret that a template or a
// person made there is one of the Store's as well.
//
// Invariants:
//   - Reads name the stage AWSCURRENT, and Get is one call.
//   - A write makes a new version that nobody reads, then moves AWSCURRENT to it from the version that the
//     writer named: Secrets Manager refuses the move to all writers but one. The id of a version is random
//     and the writer's own, so a writer whose answer was lost finds out whether it won, unless two others have won since.
//   - Delete makes a version whose id begins with CLUSTERPASS_DELETED current before it schedules the deletion. When
//     the name is used again, Secrets Manager only lets us restore the old secret; thanks to that version
//     nobody ever reads the deleted value, and of several creators one wins. The value stays recoverable as
//     AWSPREVIOUS.
//   - Errors never hold the words of AWS about a call that carried a value.
//
// Permissions: secretsmanager:GetSecretValue to read; to list, ListSecrets; to write, also CreateSecret,
// DescribeSecret, PutSecretValue, UpdateSecretVersionStage, DeleteSecret, RestoreSecret, TagResource and UntagResource.
package awssecrets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Config configures a Store.
type Config struct {
	// AWS gives region, endpoint and credentials, as awsclient.Load finds them.
	AWS aws.Config
	// Prefix begins the AWS name of every secret: one for each installation, such as "clusterpass/prod/".
	Prefix string
	// KMSKey encrypts new secrets: the ARN, id or alias of a key. Empty means the account's aws/secretsmanager.
	KMSKey string
	// RecoveryDays is how long a deleted secret can be recovered in AWS: 7 to 30; 0 means 7.
	RecoveryDays int64
}

// Store implements secrets.Store. It holds nothing but an HTTP client.
type Store struct {
	client  *secretsmanager.Client
	cfg     Config
	timeout time.Duration // of a call: awsclient.CallTimeout, but in tests
}

var _ secrets.Store = (*Store)(nil)

var prefixRE = regexp.MustCompile(`^[A-Za-z0-9/_+=.@-]*$`)

// New returns a Store. It makes no call.
func New(cfg Config) (*Store, error) {
	if len(cfg.Prefix) > 200 || !prefixRE.MatchString(cfg.Prefix) {
		return nil,
			fmt.Errorf("prefix %q of secrets: want at most 200 letters, digits and /_+=.@-, such as clusterpass/prod/",
				cfg.Prefix)
	}
	cfg.RecoveryDays = cmp.Or(cfg.RecoveryDays, 7)
	if cfg.RecoveryDays < 7 || cfg.RecoveryDays > 30 {
		return nil, fmt.Errorf("recovery of secrets for %d days: want 7 to 30", cfg.RecoveryDays)
	}
	if cfg.AWS.Region == "" {
		return nil, errors.New("no AWS region; set AWS_REGION")
	}
	return &Store{
		client: secretsmanager.NewFromConfig(awsclient.Configure(cfg.AWS)), cfg: cfg, timeout: awsclient.CallTimeout,
	}, nil
}

// Get implements secrets.Store.
func (s *Store) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	if err := secrets.ValidName(name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	sec, err := s.get(ctx, name)
	if err != nil {
		return nil, fail("get", name, err)
	}
	return sec, nil
}

// List implements secrets.Store. In AWS it lags behind writes by up to minutes.
func (s *Store) List(ctx context.Context, labels map[string]string) ([]secrets.Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*s.timeout) // a call for each 100 secrets
	defer cancel()
	in := &secretsmanager.ListSecretsInput{MaxResults: aws.Int32(100)}
	if s.cfg.Prefix != "" {
		in.Filters = []types.Filter{{Key: types.FilterNameStringTypeName, Values: []string{s.cfg.Prefix}}}
	}
	found := map[string]secrets.Meta{} // a page may repeat what another had
	for pages := secretsmanager.NewListSecretsPaginator(s.client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fail("list", s.cfg.Prefix, err)
		}
		for _, e := range page.SecretList {
			name, ok := strings.CutPrefix(aws.ToString(e.Name), s.cfg.Prefix)
			if !ok || secrets.ValidName(name) != nil || e.DeletedDate != nil {
				continue
			}
			version := currentOf(e.SecretVersionsToStages)
			m := secrets.Meta{Name: name, Version: version, Labels: labelsOf(e.Tags), Updated: aws.ToTime(e.LastChangedDate)}
			if version != "" && !isTombstone(version) && m.Has(labels) {
				found[name] = m
			}
		}
	}
	metas := make([]secrets.Meta, 0, len(found))
	for _, m := range found {
		metas = append(metas, m)
	}
	slices.SortFunc(metas, func(a, b secrets.Meta) int { return strings.Compare(a.Name, b.Name) })
	return metas, nil
}

// Replace implements secrets.Store.
func (s *Store) Replace(ctx context.Context, name, old string, v secrets.Value) (string, error) {
	if err := errors.Join(secrets.ValidName(name), secrets.ValidValue(v)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// Most conflicts show here, before a version is made for nothing.
	current, err := s.get(ctx, name)
	if err == nil && current.Version != old {
		err = fmt.Errorf("%w: want version %.64q, is %q", secrets.ErrConflict, old, current.Version)
	}
	if err != nil {
		return "", fail("replace", name, err)
	}
	version, err := newVersion("")
	if err == nil {
		err = s.swap(ctx, name, old, version, v)
	}
	if err != nil {
		return "", fail("replace", name, err)
	}
	return version, nil
}

// Delete implements secrets.Store. In AWS the secret can be recovered for Config.RecoveryDays: restore it, then
// move AWSCURRENT to the version AWSPREVIOUS.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := secrets.ValidName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		version, err := newVersion(tombstone)
		if err != nil {
			return err
		}
		current, err := s.get(ctx, name)
		switch {
		case err == nil:
			err = s.swap(ctx, name, current.Version, version, secrets.NewValue([]byte("deleted")))
		case errors.Is(err, errTombstone):
			version = current.Version // of a Delete that is under way, or died: it is finished here
		}
		if errors.Is(err, secrets.ErrConflict) && attempt < maxRaces {
			continue // it was replaced just now; the newer value goes as well
		}
		if err == nil || errors.Is(err, errTombstone) {
			// Where it is not scheduled that alone is the error: who is told that there is no secret does not try again.
			err = cmp.Or(s.schedule(ctx, name, version), err)
		}
		if err != nil {
			return fail("delete", name, err)
		}
		return nil
	}
}

// schedule schedules the deletion of a secret whose current version is a tombstone. A creator may have used the name
// again: then there is nothing to delete. What comes between two calls here is taken back, also if the caller has gone; should the
// process die just then, the creator takes it back, see createAgain.
func (s *Store) schedule(ctx context.Context, name, version string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	if now, _, err := s.state(ctx, name); err != nil || now != version {
		return err
	}
	_, err := s.client.DeleteSecret(ctx, &secretsmanager.DeleteSecretInput{
		SecretId: s.id(name), RecoveryWindowInDays: &s.cfg.RecoveryDays,
	})
	if err = missing(err); err != nil && !errors.Is(err, secrets.ErrNotFound) {
		return err
	}
	if now, scheduled, err := s.state(ctx, name); err != nil || now == version || !scheduled {
		return err
	}
	return s.restore(ctx, name)
}

// restore takes the scheduled deletion of a secret back, unless somebody else has.
func (s *Store) restore(ctx context.Context, name string) error {
	_, err := s.client.RestoreSecret(ctx, &secretsmanager.RestoreSecretInput{SecretId: s.id(name)})
	if awsclient.Code(err) == notNow {
		return nil
	}
	return missing(err)
}

// state is the current version of a secret, "" where there is none, and whether the secret's deletion is scheduled.
func (s *Store) state(ctx context.Context, name string) (version string, scheduled bool, err error) {
	is, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: s.id(name)})
	if err = missing(err); errors.Is(err, secrets.ErrNotFound) {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	return currentOf(is.VersionIdsToStages), is.DeletedDate != nil, nil
}

func (s *Store) id(name string) *string { return aws.String(s.cfg.Prefix + name) }
