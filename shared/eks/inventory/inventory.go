// Package inventory lists the EKS clusters of AWS accounts. Only the command line links it.
package inventory

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	orgtypes "github.com/aws/aws-sdk-go-v2/service/organizations/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"golang.org/x/sync/errgroup"

	"github.com/clusterpass/clusterpass/shared/awsclient"
)

const (
	// parallel is the number of regions, of any accounts, that are read at once.
	parallel = 8
	// regionTimeout bounds the reading of one region of one account.
	regionTimeout = 5 * time.Minute
	session       = "clusterpass-discover"
)

// Query selects accounts and regions.
type Query struct {
	Accounts     []string // account IDs; empty for the caller's own
	Organization bool     // all active accounts of the caller's organization, instead of Accounts
	Role         string   // name of the role that is assumed in other accounts than the caller's own
	Regions      []string // empty for the region of the configuration
}

// Cluster is an EKS cluster that accepts calls.
type Cluster struct {
	Account, Region, Name string
	Partition             string // of ARNs, such as aws
	Endpoint              string // URL of its API server
	Version               string // of Kubernetes, such as 1.34
	CA                    []byte // PEM
	Tags                  map[string]string
}

// Failure is a region of an account that could not be read.
type Failure struct {
	Account, Region string
	Err             error
}

// List returns the clusters, sorted by account, region and name. Accounts and regions that cannot be read are failures.
// An error means that the caller or the organization's accounts are unknown.
func List(ctx context.Context, cfg aws.Config, q Query) (clusters []Cluster, failures []Failure, err error) {
	cfg = awsclient.Configure(cfg)
	regions := q.Regions
	if len(regions) == 0 {
		if cfg.Region == "" {
			return nil, nil, errors.New("no region is configured; name some with --regions, or set AWS_REGION")
		}
		regions = []string{cfg.Region}
	}
	regions = unique(regions)
	cfg.Region = cmp.Or(cfg.Region, regions[0]) // for the services that name the accounts
	own, partition, err := caller(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	accounts := q.Accounts
	if q.Organization {
		if accounts, err = organizationAccounts(ctx, cfg); err != nil {
			return nil, nil, err
		}
	} else if len(accounts) == 0 {
		accounts = []string{own}
	}
	accounts = unique(accounts)
	type place struct {
		Failure
		found []Cluster
	}
	var places []*place
	group := &errgroup.Group{}
	group.SetLimit(parallel)
	for _, account := range accounts {
		in := cfg
		if account != own {
			role := fmt.Sprintf("arn:%s:iam::%s:role/%s", partition, account, q.Role)
			in = assume(cfg, role)
		}
		for _, region := range regions {
			p := &place{Failure: Failure{Account: account, Region: region}}
			places = append(places, p)
			group.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, regionTimeout)
				defer cancel()
				p.found, p.Err = inRegion(ctx, in, partition, account, region)
				return nil
			})
		}
	}
	_ = group.Wait() // failures are recorded in places
	for _, p := range places {
		clusters = append(clusters, p.found...)
		if p.Err != nil {
			failures = append(failures, p.Failure)
		}
	}
	slices.SortFunc(clusters, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Name, b.Name))
	})
	return clusters, failures, ctx.Err()
}

func unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

func caller(ctx context.Context, cfg aws.Config) (account, partition string, err error) {
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", "", fmt.Errorf("find out the AWS account of this machine's credentials: %w", err)
	}
	parsed, err := arn.Parse(aws.ToString(out.Arn))
	if err != nil {
		return "", "", fmt.Errorf("the ARN of this machine's AWS identity: %w", err)
	}
	return aws.ToString(out.Account), parsed.Partition, nil
}

func assume(cfg aws.Config, role string) aws.Config {
	in := cfg.Copy()
	in.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), role,
		func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = session }))
	return in
}

func organizationAccounts(ctx context.Context, cfg aws.Config) ([]string, error) {
	var accounts []string
	client := organizations.NewFromConfig(cfg)
	pages := organizations.NewListAccountsPaginator(client, &organizations.ListAccountsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the accounts of the organization: %w; name accounts with --accounts", err)
		}
		for _, a := range page.Accounts {
			if a.State == orgtypes.AccountStateActive || a.State == "" {
				accounts = append(accounts, aws.ToString(a.Id))
			}
		}
	}
	if len(accounts) == 0 {
		return nil, errors.New("list the accounts of the organization: it has no active account that these credentials may " +
			"list; name accounts with --accounts")
	}
	return accounts, nil
}

// inRegion returns the clusters of a region that accept calls. One that is being created may have no endpoint yet.
func inRegion(ctx context.Context, cfg aws.Config, partition, account, region string) ([]Cluster, error) {
	client := eks.NewFromConfig(cfg, func(o *eks.Options) { o.Region = region })
	var found []Cluster
	for pages := eks.NewListClustersPaginator(client, &eks.ListClustersInput{}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return found, fmt.Errorf("list clusters: %w", err)
		}
		for _, name := range page.Clusters {
			out, err := client.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(name)})
			var missing *ekstypes.ResourceNotFoundException
			switch {
			case errors.As(err, &missing): // deleted meanwhile
				continue
			case err != nil:
				return found, fmt.Errorf("describe cluster %q: %w", name, err)
			case out.Cluster.Status != ekstypes.ClusterStatusActive && out.Cluster.Status != ekstypes.ClusterStatusUpdating,
				aws.ToString(out.Cluster.Endpoint) == "", out.Cluster.CertificateAuthority == nil:
				continue
			}
			ca, err := base64.StdEncoding.DecodeString(aws.ToString(out.Cluster.CertificateAuthority.Data))
			if err != nil {
				return found, fmt.Errorf("the certificate of cluster %q: %w", name, err)
			}
			found = append(found, Cluster{
				Account: account, Region: region, Partition: partition, Name: name,
				Endpoint: strings.TrimSuffix(*out.Cluster.Endpoint, "/"),
				Version:  aws.ToString(out.Cluster.Version), CA: ca, Tags: out.Cluster.Tags,
			})
		}
	}
	return found, nil
}
