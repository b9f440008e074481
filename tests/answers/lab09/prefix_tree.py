# kind: right
# about: A radix tree of blocks in place of a dictionary; blocks that nobody can find are taken first.

# %% solution="block_manager"
class Node:
    def __init__(self):
        self.children, self.block = {}, None


class BlockManager:
    def __init__(self, num_blocks, block_size, hash_fn=hash):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.ref_count, self.root, self.node_of = [0] * num_blocks, Node(), {}
        self.order = dict.fromkeys(range(num_blocks))

    @property
    def free(self):
        return [b for b in self.order if b not in self.node_of] + [b for b in self.order if b in self.node_of]

    def allocate(self, count):
        blocks = self.free[:count]
        if len(blocks) < count:
            return None
        for block in blocks:
            del self.order[block]
            self.ref_count[block] = 1
            if block in self.node_of:
                self.node_of.pop(block).block = None
        return blocks

    def acquire(self, blocks):
        for block in blocks:
            self.order.pop(block, None)
            self.ref_count[block] += 1

    def release(self, blocks):
        for block in reversed(list(blocks)):
            self.ref_count[block] -= 1
            if self.ref_count[block] == 0:
                self.order[block] = None

    def _walk(self, tokens, count, create=False):
        node = self.root
        for i in range(count):
            own = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
            if own not in node.children:
                if not create:
                    return
                node.children[own] = Node()
            node = node.children[own]
            yield node

    def register(self, tokens, blocks):
        for node, block in zip(self._walk(tokens, len(tokens) // self.block_size, create=True), blocks):
            if node.block is None and block not in self.node_of:
                node.block, self.node_of[block] = block, node

    def match(self, tokens):
        found = []
        for node in self._walk(tokens, (len(tokens) - 1) // self.block_size):
            if node.block is None:
                break
            found.append(node.block)
        return found
