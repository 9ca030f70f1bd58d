#!/bin/sh
# Pacemaker's part, once, on either machine; docs/high-availability.md says more. Replace addresses, device and fencing by yours.
set -e
pcs property set stonith-enabled=true no-quorum-policy=stop
pcs resource defaults update resource-stickiness=100
pcs stonith create power-one fence_ipmilan ip=192.0.2.11 username=fence password_script=/etc/pacemaker/power-one lanplus=1 \
  pcmk_host_list=one
pcs stonith create power-two fence_ipmilan ip=192.0.2.12 username=fence password_script=/etc/pacemaker/power-two lanplus=1 \
  pcmk_host_list=two pcmk_delay_base=5s
pcs resource create block ocf:linbit:drbd drbd_resource=quotebot \
  op monitor interval=29s role=Promoted op monitor interval=31s role=Unpromoted \
  promotable promoted-max=1 promoted-node-max=1 clone-max=2 clone-node-max=1 notify=true
pcs resource create volume ocf:heartbeat:Filesystem device=/dev/drbd0 directory=/srv/quotebot fstype=ext4 options=noatime --group bot
pcs resource create quotebot systemd:quotebot op start timeout=900s op stop timeout=60s op monitor interval=15s --group bot
pcs constraint colocation add bot with Promoted block-clone INFINITY
pcs constraint order promote block-clone then start bot
