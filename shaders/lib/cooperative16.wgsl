// Matrices that a subgroup multiplies together, 16 x 16: what drivers for Vulkan offer.
enable f16;
enable wgpu_cooperative_matrix;
const SIZE: u32 = 16u;
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sum = coop_mat16x16<f32, C>;
