// Package awssecrets stores secrets in AWS Secrets Manager. The secret clusters/member1 is the AWS secret
// PREFIXclusters/member1, its value a string if it is valid UTF-8, and its labels are tags.
//
//   - Replace and Delete create a version that Get does not read, then move AWSCURRENT to it from the version that they
//     read before. Only one writer can succeed.
//   - The writer chooses a random version ID. By that it detects that it succeeded, even if the response was lost.
//   - Delete makes a tombstone current, a version whose ID starts with CLUSTERPASS_DELETED-, and then schedules the
//     deletion of the AWS secret. Create must restore that secret to reuse the name. Because of the tombstone, Get does
//     not return the deleted value meanwhile.
//   - The deleted value can be recovered as AWSPREVIOUS.
//   - AWS's message about an invalid request may quote the value in it. The errors of Create and Replace omit it.
package awssecrets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// AWS is the region, endpoint and credentials, as awsclient.Load returns them.
	AWS aws.Config
	// Prefix starts the AWS name of every secret. Each installation has its own, e.g. "clusterpass/prod/".
	Prefix string
	// KMSKey is the ARN, ID or alias of the key for new secrets. "" means the AWS managed key.
	KMSKey string
	// RecoveryDays is how long a deleted secret can be recovered in AWS: 7 to 30. 0 means 7.
	RecoveryDays int64
}

// Store implements secrets.Store. It needs no Close.
type Store struct {
	client  *secretsmanager.Client
	cfg     Config
	timeout time.Duration // for one call; awsclient.CallTimeout except in tests
}

var _ secrets.Store = (*Store)(nil)

// prefixCharacters are those that AWS allows in the name of a secret.
const prefixCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_+=.@-"

// New returns a Store. It makes no call.
func New(cfg Config) (*Store, error) {
	if len(cfg.Prefix) > 200 || strings.Trim(cfg.Prefix, prefixCharacters) != "" {
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

// List implements secrets.Store. A change may be missing from the list for some minutes.
func (s *Store) List(ctx context.Context, labels map[string]string) ([]secrets.Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*s.timeout) // one call per 100 secrets
	defer cancel()
	in := &secretsmanager.ListSecretsInput{MaxResults: aws.Int32(100)}
	if s.cfg.Prefix != "" {
		in.Filters = []types.Filter{{Key: types.FilterNameStringTypeName, Values: []string{s.cfg.Prefix}}}
	}
	found := map[string]secrets.Meta{} // pages may overlap
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
	// Most conflicts are found here, before a version is created in vain.
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

// Delete implements secrets.Store. To recover the value in AWS within Config.RecoveryDays, restore the secret, then
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
		case errors.Is(err, errDeleted):
			version = current.Version // of another Delete, which may have died before it scheduled the deletion
		}
		if errors.Is(err, secrets.ErrConflict) && attempt < maxRaces {
			continue // it was just replaced; delete the newer value, too
		}
		if err == nil || errors.Is(err, errDeleted) {
			// Return an error of schedule first, because the caller does not try again after ErrNotFound.
			err = cmp.Or(s.schedule(ctx, name, version), err)
		}
		if err != nil {
			return fail("delete", name, err)
		}
		return nil
	}
}

// schedule schedules the deletion of a secret whose current version is the tombstone version. If a Create reuses the
// name between the check and the deletion, schedule cancels the deletion. createAgain does so, too, because this
// process may die in between.
func (s *Store) schedule(ctx context.Context, name, version string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	if now, _, err := s.state(ctx, name); err != nil || now != version {
		return err
	}
	_, err := s.client.DeleteSecret(ctx, &secretsmanager.DeleteSecretInput{
		SecretId: s.id(name), RecoveryWindowInDays: &s.cfg.RecoveryDays,
	})
	if err = asNotFound(err); err != nil && !errors.Is(err, secrets.ErrNotFound) {
		return err
	}
	if now, scheduled, err := s.state(ctx, name); err != nil || now == version || !scheduled {
		return err
	}
	return s.restore(ctx, name)
}

func (s *Store) restore(ctx context.Context, name string) error {
	_, err := s.client.RestoreSecret(ctx, &secretsmanager.RestoreSecretInput{SecretId: s.id(name)})
	if awsclient.Code(err) == invalidRequest { // no deletion is scheduled
		return nil
	}
	return asNotFound(err)
}

// state returns the current version of a secret, or "", and whether its deletion is scheduled.
func (s *Store) state(ctx context.Context, name string) (version string, scheduled bool, err error) {
	is, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: s.id(name)})
	if err = asNotFound(err); errors.Is(err, secrets.ErrNotFound) {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	return currentOf(is.VersionIdsToStages), is.DeletedDate != nil, nil
}

func (s *Store) id(name string) *string { return aws.String(s.cfg.Prefix + name) }
