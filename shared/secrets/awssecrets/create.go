package awssecrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Create implements secrets.Store. It restores a deleted AWS secret, then writes the value, then the labels.
func (s *Store) Create(ctx context.Context, name string, v secrets.Value, labels map[string]string) (string, error) {
	if err := errors.Join(secrets.ValidName(name), secrets.ValidValue(v), secrets.ValidLabels(labels)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	version, err := s.createNew(ctx, name, v, labels)
	for attempt := 1; errors.Is(err, errTaken); attempt++ {
		version, err = s.createAgain(ctx, name, v, labels)
		// The secret was deleted between the calls, or does not exist any more.
		if errors.Is(err, secrets.ErrNotFound) && attempt < maxRaces {
			if err = awsclient.Sleep(ctx, awsclient.Pause(attempt)); err == nil {
				version, err = s.createNew(ctx, name, v, labels)
			}
		}
	}
	if err != nil {
		return "", fail("create", name, err)
	}
	return version, nil
}

// errTaken means that AWS has a secret with that name, which may be deleted.
var errTaken = errors.New("the name is taken")

func (s *Store) createNew(ctx context.Context, name string, v secrets.Value, labels map[string]string) (string, error) {
	version, err := newVersion("")
	if err != nil {
		return "", err
	}
	in := &secretsmanager.CreateSecretInput{Name: s.id(name), ClientRequestToken: &version, Tags: tagsOf(labels)}
	in.SecretString, in.SecretBinary = content(v)
	if s.cfg.KMSKey != "" {
		in.KmsKeyId = &s.cfg.KMSKey
	}
	_, err = s.client.CreateSecret(ctx, in)
	var (
		exists    *types.ResourceExistsException
		scheduled *types.InvalidRequestException
	)
	if errors.As(err, &exists) || errors.As(err, &scheduled) {
		return "", errTaken
	} else if err != nil {
		return "", awsclient.Discreet(err)
	}
	return version, nil
}

// createAgain writes v to an AWS secret that was deleted or has no value. It returns ErrExists if the secret has a
// value, and ErrNotFound if it was deleted meanwhile.
func (s *Store) createAgain(ctx context.Context, name string, v secrets.Value, labels map[string]string) (string,
	error) {
	is, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: s.id(name)})
	if err != nil {
		return "", asNotFound(err)
	}
	old := currentOf(is.VersionIdsToStages)
	switch {
	case is.DeletedDate != nil:
		// Without a tombstone, Get returns the value of another program until the swap. The swap lets one creator succeed.
		if err := s.restore(ctx, name); err != nil {
			return "", err
		}
	case old != "" && !isTombstone(old):
		return "", secrets.ErrExists
	}
	version, err := newVersion("")
	if err == nil {
		err = s.swap(ctx, name, old, version, v)
	}
	if errors.Is(err, secrets.ErrConflict) {
		return "", fmt.Errorf("%w: %w", secrets.ErrExists, err)
	} else if err != nil {
		return "", err
	}
	// A Delete that started earlier may have scheduled the deletion of this version.
	now, scheduled, err := s.state(ctx, name)
	if err == nil && scheduled && now == version {
		err = s.restore(ctx, name)
	}
	if err == nil && now == version {
		err = asNotFound(s.retag(ctx, name, is.Tags, labels))
	}
	if errors.Is(err, secrets.ErrNotFound) {
		err = nil // created, and deleted again by another Delete
	}
	return version, err
}

func (s *Store) retag(ctx context.Context, name string, tags []types.Tag, labels map[string]string) error {
	drop := labelsOf(tags)
	maps.DeleteFunc(drop, func(k, _ string) bool { _, stays := labels[k]; return stays })
	if len(drop) > 0 {
		_, err := s.client.UntagResource(ctx, &secretsmanager.UntagResourceInput{
			SecretId: s.id(name), TagKeys: slices.Collect(maps.Keys(drop)),
		})
		if err != nil {
			return err
		}
	}
	if len(labels) > 0 {
		if _, err := s.client.TagResource(ctx, &secretsmanager.TagResourceInput{
			SecretId: aws.String(s.cfg.Prefix + name), Tags: tagsOf(labels),
		}); err != nil {
			return err
		}
	}
	return nil
}
